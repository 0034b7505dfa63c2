"""Collects the Python text that the compiler writes, and remembers which P4 line each line of it came from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from collectives.p4.errors import Position

_NOWHERE = Position("<built in>", 1, 1)


class Writer:
    """Lines of Python with their indentation; ``positions[n]`` is the P4 place of line n (from 0)."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.positions: list[Position] = []
        self.position = _NOWHERE
        self._indent = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._indent + text)
        self.positions.append(self.position)

    def name(self, hint: str = "t") -> str:
        """Return a Python name that nothing else has."""
        self._names += 1
        return f"{hint}_{self._names}"

    @contextlib.contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Add a line that opens a block; the lines added within are its body, ``pass`` where there are none."""
        self.line(opening)
        self._indent += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._indent -= 1

    def insert(self, at: int, lines: list[str], indent: int) -> None:
        """Put lines before line ``at``."""
        self.lines[at:at] = ["    " * indent + text for text in lines]
        self.positions[at:at] = [self.position] * len(lines)

    @property
    def indent(self) -> int:
        """How deep the next line stands."""
        return self._indent

    def text(self) -> str:
        """Return everything so far."""
        return "\n".join(self.lines) + "\n"
