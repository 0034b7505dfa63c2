"""Header stacks while a program runs. Used by the generated code; imports nothing of the package."""

from __future__ import annotations

from typing import Any


class HeaderStack:
    """``size`` headers of one kind; ``next`` is how many a parser has extracted."""

    __slots__ = ("items", "kind", "next")

    def __init__(self, kind: Any, size: int) -> None:
        self.kind = kind
        self.items = [kind() for _ in range(size)]
        self.next = 0

    def copy(self) -> HeaderStack:
        """Return a stack with copies of the headers."""
        new = HeaderStack.__new__(HeaderStack)
        new.kind, new.next = self.kind, self.next
        new.items = [item.copy() for item in self.items]
        return new

    def assign(self, other: HeaderStack) -> None:
        """Take over the headers of another stack of this kind."""
        for item, theirs in zip(self.items, other.items, strict=False):
            item.assign(theirs)
        self.next = other.next

    def reset(self) -> None:
        """Make all headers invalid."""
        for item in self.items:
            item.reset()
        self.next = 0

    def same(self, other: HeaderStack) -> bool:
        """Tell whether all headers are the same."""
        return all(item.same(theirs) for item, theirs in zip(self.items, other.items, strict=False))

    def pack(self) -> bytes:
        """Return the bytes of the valid headers, in order."""
        return b"".join(item.pack() for item in self.items)

    def push_front(self, count: int) -> None:
        """Move each header ``count`` places back; the first ones become invalid, the last ones are lost."""
        count = min(count, len(self.items))
        self.items = [self.kind() for _ in range(count)] + self.items[: len(self.items) - count]
        self.next = min(self.next + count, len(self.items))

    def pop_front(self, count: int) -> None:
        """Move each header ``count`` places to the front; the first ones are lost, the last ones become invalid."""
        count = min(count, len(self.items))
        self.items = self.items[count:] + [self.kind() for _ in range(count)]
        self.next = max(self.next - count, 0)
