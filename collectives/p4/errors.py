"""What goes wrong with a P4 program: before it runs (:class:`P4Error`) and while it runs (:class:`P4RuntimeError`).

Imports nothing of the package; every other module of :mod:`collectives.p4` may import it.
"""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A place in a source file: path as it was given, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


def counted(number: int, noun: str) -> str:
    """Return ``1 value`` or ``2 values``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _AtPosition(Exception):
    """The text of an error begins with its place in the source, whose parts are attributes."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(f"{position}: {message}")
        self.file = position.file
        self.line = position.line
        self.column = position.column
        self.message = message


class P4Error(_AtPosition, ValueError):
    """A P4 source that cannot be run: wrong, or outside the subset.

    The text reads ``file:line:column: what is wrong; what to do``.

    Parameters
    ----------
    position : Position
        Where it is wrong.
    message : str
        What is wrong, and what to do.
    """


class P4RuntimeError(_AtPosition, RuntimeError):
    """A packet made the program do what has no defined result: an index out of range, a failed assert.

    The text begins with the place in the P4 source. The packet is lost; registers keep what was written before.
    """
