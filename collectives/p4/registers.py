"""Registers and counters as the control plane sees them. Used by the switch; imports the layouts' types."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from collectives.p4 import types as t

Item = TypeVar("Item")


class Named(dict[str, Item]):
    """Objects by the names that the control plane uses; a wrong name is answered with the right ones."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def __missing__(self, name: str) -> Item:
        raise KeyError(f"there is no {self._what} {name!r}; the program has {', '.join(self) or 'none'}")


class Register:
    """A register array; ``cells`` is the list that the program works on.

    Parameters
    ----------
    name : str
        For errors.
    size : int
        How many cells.
    kind : Bits
        The type of a cell.
    """

    def __init__(self, name: str, size: int, kind: t.Bits) -> None:
        self.name = name
        self.kind = kind
        self.cells = [0] * size

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, index: int) -> int:
        return self.cells[self._checked(index)]

    def __setitem__(self, index: int, value: int) -> None:
        if not self.kind.lowest <= value <= self.kind.highest:
            raise ValueError(f"{value} does not fit into register {self.name} of {self.kind}")
        self.cells[self._checked(index)] = int(value)

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self.cells):
            raise IndexError(f"register {self.name} has the cells 0 to {len(self.cells) - 1}, not {index}")
        return index

    def clear(self) -> None:
        """Set every cell to 0."""
        self.cells[:] = [0] * len(self.cells)


class Count(NamedTuple):
    """What a counter has counted."""

    packets: int
    bytes: int


class Counter:
    """An array of counters, or the direct counter of a table (then an index is a key of the table).

    Parameters
    ----------
    name : str
        For errors.
    size : int or None
        How many; None for a direct counter.
    """

    def __init__(self, name: str, size: int | None) -> None:
        self.name = name
        self.size = size
        self._counts: dict[Any, Count] = {}
        self.key_of: Any = None  # of a direct counter: what makes a key of the table of an index

    def count(self, index: Any, packet_bytes: int) -> None:
        """Count a packet; outside the array it is not counted, as on BMv2."""
        if self.size is None or index < self.size:
            before = self._counts.get(index, Count(0, 0))
            self._counts[index] = Count(before.packets + 1, before.bytes + packet_bytes)

    def __len__(self) -> int:
        return len(self._counts) if self.size is None else self.size

    def __getitem__(self, index: Any) -> Count:
        if self.size is None:
            index = self.key_of(index)
        elif not 0 <= index < self.size:
            raise IndexError(f"counter {self.name} has the indices 0 to {self.size - 1}, not {index}")
        return self._counts.get(index, Count(0, 0))

    def clear(self) -> None:
        """Start from 0 again."""
        self._counts.clear()
