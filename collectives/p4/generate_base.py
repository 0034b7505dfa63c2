"""The ground of the compiler: what is being written, the names in it, and walks over the checked tree.

The compiler is one class in several files, each building on the one before: this, expressions, calls, native functions,
statements, tables, parsers (``generate.py`` puts a program together).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.errors import Position
from collectives.p4.scope import Symbol
from collectives.p4.writer import Writer

# Python reads at most 200 nested parentheses: greater expressions are cut into pieces.
MAX_WEIGHT = 60


@dataclasses.dataclass
class Frame:
    """An action that is written in place: how to leave it.

    ``copy_out`` writes back its out parameters; ``flag`` is the variable that says, within a loop, that it returned;
    ``loops`` counts the open loops of P4 inside it.
    """

    copy_out: Callable[[], None]
    flag: str | None = None
    loops: int = 0


@dataclasses.dataclass
class Layout:
    """What a program keeps between packets, found while it is compiled: path -> what is there."""

    registers: dict[str, RegisterLayout] = dataclasses.field(default_factory=dict)
    counters: dict[str, CounterLayout] = dataclasses.field(default_factory=dict)
    tables: dict[str, TableLayout] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class RegisterLayout:
    """A register: how many cells, of which type."""

    size: int
    kind: t.Bits


@dataclasses.dataclass
class CounterLayout:
    """A counter; ``size`` is None for the direct counter of a table."""

    size: int | None
    counts: str  # packets, bytes or packets_and_bytes
    table: str | None = None


@dataclasses.dataclass
class KeyLayout:
    """An element of a key: what the control plane calls it, its type, how it is matched."""

    name: str
    kind: t.Type
    match: str


@dataclasses.dataclass
class ActionLayout:
    """An action as a table runs it: what the control plane calls it, and its data."""

    name: str
    parameters: list[tuple[str, t.Type]]


@dataclasses.dataclass
class EntryLayout:
    """An entry that the source gives: one matcher a key (see tables.py), the action's number, its data."""

    keys: list[Any]
    action: int
    data: tuple[Any, ...]


@dataclasses.dataclass
class TableLayout:
    """A table."""

    keys: list[KeyLayout]
    actions: list[ActionLayout]
    size: int
    default: tuple[int, tuple[Any, ...]]
    default_is_constant: bool
    entries: list[EntryLayout]
    entries_are_constant: bool
    counter: str | None = None


class GeneratorBase:
    """State of the compiler while it writes one function."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.layout = Layout()
        self.composites: dict[t.Composite, None] = {}  # whose classes are needed, in order
        self.errors: dict[str, int] = {}
        self.names: dict[Symbol, str] = {}  # variable or parameter -> Python expression
        self.values: dict[Symbol, Any] = {}  # constructor parameter -> its value in this instance
        self.path = ""  # of the instance that is written
        self.frames: list[Frame] = []
        self.results: Callable[[bool], str] = lambda exited: ""  # what the function returns
        self.table_results: dict[Any, tuple[str, str]] = {}
        self.aliases: dict[str, str] = {}  # path of a header that is used -> local name for it
        self.roots: set[str] = set()  # parameters whose parts never move
        self._weights: dict[int, int] = {}
        self._contains: dict[tuple[int, type], bool] = {}

    def at(self, position: Position) -> None:
        """Say where in the source the next lines come from."""
        self.writer.position = position

    def failure(self, message: str) -> None:
        """Write a line that stops the packet with an error at the present place."""
        self.writer.line(f"raise P4RuntimeError(Position(*{tuple(self.writer.position)!r}), {message!r})")

    def use(self, kind: t.Type) -> t.Type:
        """Note that a type's class is needed, and those of its fields."""
        inner = t.bare(kind)
        if isinstance(inner, t.Stack):
            self.use(inner.item)
        elif isinstance(inner, t.Tuple):
            for item in inner.items:
                self.use(item)
        elif isinstance(inner, t.Composite) and inner not in self.composites:
            for field in inner.fields.values():
                self.use(field)
            self.composites[inner] = None
        return kind

    # ---- questions about the tree

    def contains(self, node: Any, wanted: type) -> bool:
        """Tell whether a statement or expression contains a node of a kind."""
        key = (id(node), wanted)
        if key not in self._contains:
            self._contains[key] = any(isinstance(inner, wanted) for inner in walk(node))
        return self._contains[key]

    def weight(self, node: Any) -> int:
        """Return how many nodes an expression has."""
        key = id(node)
        if key not in self._weights:
            self._weights[key] = 1 + sum(self.weight(inner) for inner in children(node))
        return self._weights[key]

    def acts(self, node: ast.Expression) -> bool:
        """Tell whether computing an expression needs statements before it."""
        if self.weight(node) > MAX_WEIGHT:
            return True  # it is computed piece by piece
        if isinstance(node, ast.Call):
            return not (node.target.kind == "header" and not self.acts(node.target.base))
        if isinstance(node, ast.Name | ast.Number | ast.TypeMember):
            return False
        if isinstance(node, ast.Member) and isinstance(node.base.type, t.Stack) and node.name in ("next", "last"):
            return True  # a parser checks that there is one
        return any(self.acts(inner) for inner in children(node) if isinstance(inner, ast.Expression))


def children(node: Any) -> Iterator[Any]:
    """Yield the nodes right below one."""
    for field in _FIELDS.get(type(node)) or _fields(type(node)):
        value = getattr(node, field)
        if isinstance(value, ast.Node):
            yield value
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, ast.Node):
                    yield one
                elif isinstance(one, tuple):
                    yield from (part for part in one if isinstance(part, ast.Node))


_FIELDS: dict[type, list[str]] = {}
_ANNOTATIONS = {"position", "type", "value", "target", "symbol", "shown"}


def _fields(kind: type) -> list[str]:
    names = [field.name for field in dataclasses.fields(kind)]
    keep = {ast.Argument: {"value"}, ast.Assignment: {"target", "value"}, ast.Return: {"value"}}
    keep |= {ast.Variable: {"value"}, ast.Constant: {"value"}}
    wanted = keep.get(kind, set())
    _FIELDS[kind] = [name for name in names if name not in _ANNOTATIONS or name in wanted]
    return _FIELDS[kind]


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)
