"""The types of P4, as the checker and the compiler see them. Imports nothing of the package but the errors.

Types without a name (bit<8>, tuples, stacks) are made once each, so that equal types are the same object and ``is``
compares them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

MAX_WIDTH = 2048  # the widest field of the reference switch


class Type:
    """Any type; ``str`` gives it as a program would write it."""

    name = "?"

    def __str__(self) -> str:
        return self.name


class Basic(Type):
    """A type that is only a name: bool, string, error, match_kind, void, packet_in, and ``int`` without a width."""

    def __init__(self, name: str) -> None:
        self.name = name


BOOL = Basic("bool")
STRING = Basic("string")
ERROR = Basic("error")
MATCH_KIND = Basic("match_kind")
VOID = Basic("void")
INTEGER = Basic("int")  # a number that is known before the program runs, of any size
STATE = Basic("state")


class Bits(Type):
    """``bit<W>`` or, where ``signed``, ``int<W>``."""

    def __init__(self, width: int, signed: bool) -> None:
        self.width = width
        self.signed = signed
        self.name = f"{'int' if signed else 'bit'}<{width}>"
        self.mask = (1 << width) - 1
        self.lowest = -(1 << (width - 1)) if signed else 0
        self.highest = (1 << (width - 1)) - 1 if signed else self.mask

    def wrap(self, number: int) -> int:
        """Return a number modulo 2**W, in this type's range."""
        return ((number - self.lowest) & self.mask) + self.lowest


class Varbit(Type):
    """``varbit<W>``: at most W bits."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.name = f"varbit<{width}>"


class Tuple(Type):
    """``tuple<A, B>``, also the type of ``{a, b}`` until it meets a struct."""

    def __init__(self, items: tuple[Type, ...]) -> None:
        self.items = items
        self.name = f"tuple<{', '.join(map(str, items))}>"


class Stack(Type):
    """``header[size]``."""

    def __init__(self, item: Type, size: int) -> None:
        self.item = item
        self.size = size
        self.name = f"{item}[{size}]"


@functools.cache
def _bits(width: int, signed: bool) -> Bits:
    return Bits(width, signed)


def bits(width: int, signed: bool = False) -> Bits:
    """Return bit<width> or int<width>."""
    return _bits(width, signed)


@functools.cache
def varbit(width: int) -> Varbit:
    """Return varbit<width>."""
    return Varbit(width)


@functools.cache
def tuple_of(items: tuple[Type, ...]) -> Tuple:
    """Return tuple<items>."""
    return Tuple(items)


@functools.cache
def stack_of(item: Type, size: int) -> Stack:
    """Return item[size]."""
    return Stack(item, size)


class Composite(Type):
    """A header or a struct; ``kind`` says which."""

    def __init__(self, name: str, kind: str, fields: Mapping[str, Type]) -> None:
        self.name = name
        self.kind = kind
        self.fields = dict(fields)

    @property
    def width(self) -> int:
        """The bits of a header's fields, a varbit's greatest size included."""
        return sum(width_of(field) or 0 for field in self.fields.values())


class Enum(Type):
    """An enum; ``under`` is the type of its values where it has them. Values are numbers in any case."""

    def __init__(self, name: str, under: Bits | None, members: Mapping[str, int]) -> None:
        self.name = name
        self.under = under
        self.members = dict(members)


class New(Type):
    """A type of its own with the values of another: ``type bit<9> Port``."""

    def __init__(self, name: str, under: Type) -> None:
        self.name = name
        self.under = under


class Variable(Type):
    """A type parameter."""

    def __init__(self, name: str) -> None:
        self.name = name


class Unknown(Type):
    """``_``: to be found out."""

    name = "_"


UNKNOWN = Unknown()


class Callable(Type):
    """What has parameters: an action, function, method, control, parser or package.

    ``kind`` says which; ``node`` is its declaration; ``parameters`` are (name, direction, type).
    """

    def __init__(
        self,
        kind: str,
        name: str,
        parameters: list[tuple[str, str, Type]],
        returns: Type = VOID,
        type_parameters: tuple[Variable, ...] = (),
        node: Any = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.returns = returns
        self.type_parameters = type_parameters
        self.node = node
        self.constructor: list[tuple[str, str, Type]] = []
        self.optional: frozenset[str] = frozenset()  # parameters that may be left out
        self.scope: Any = None  # what its body sees, kept for the compiler


class Extern(Type):
    """A kind of extern object, its type parameters bound to ``arguments``."""

    def __init__(self, declaration: ExternDeclaration, arguments: tuple[Type, ...]) -> None:
        self.declaration = declaration
        self.arguments = arguments
        self.name = declaration.name + (f"<{', '.join(map(str, arguments))}>" if arguments else "")

    @property
    def bindings(self) -> dict[Variable, Type]:
        """Type parameter -> type."""
        return dict(zip(self.declaration.type_parameters, self.arguments, strict=False))


class ExternDeclaration:
    """A kind of extern object before its type parameters are bound."""

    def __init__(self, name: str, type_parameters: tuple[Variable, ...]) -> None:
        self.name = name
        self.type_parameters = type_parameters
        self.makers: list[Callable] = []
        self.methods: dict[str, list[Callable]] = {}
        self.abstract: dict[str, Callable] = {}
        self._bound: dict[tuple[Type, ...], Extern] = {}

    def bind(self, arguments: tuple[Type, ...]) -> Extern:
        """Return this kind with type arguments, the same object each time."""
        return self._bound.setdefault(arguments, Extern(self, arguments))


class Table(Type):
    """A table; ``node`` is its declaration."""

    def __init__(self, name: str, node: Any) -> None:
        self.name = f"table {name}"
        self.node = node


class TableResult(Type):
    """What ``table.apply()`` returns."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.name = f"the result of {table}"


class ActionRun(Type):
    """What ``table.apply().action_run`` is: one of the table's actions."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.name = f"the action that {table} ran"


def width_of(kind: Type) -> int | None:
    """Return the bits that a value takes in a packet, at most; None where it cannot be in one."""
    if isinstance(kind, Bits | Varbit):
        return kind.width
    if kind is BOOL:
        return 1
    if isinstance(kind, Enum):
        return kind.under.width if kind.under else None
    if isinstance(kind, New):
        return width_of(kind.under)
    if isinstance(kind, Composite):
        widths = [width_of(field) for field in kind.fields.values()]
        return None if None in widths else sum(width or 0 for width in widths)
    if isinstance(kind, Tuple):
        widths = [width_of(item) for item in kind.items]
        return None if None in widths else sum(width or 0 for width in widths)
    if isinstance(kind, Stack):
        width = width_of(kind.item)
        return None if width is None else width * kind.size
    return None


def bare(kind: Type) -> Type:
    """Return the type whose values a new type or an enum with values has; any other type itself."""
    while isinstance(kind, New):
        kind = kind.under
    return kind


def bits_of(kind: Type) -> Bits:
    """Return the bit<W> or int<W> that a value is, under whatever name."""
    kind = bare(kind)
    if isinstance(kind, Enum) and kind.under is not None:
        kind = kind.under
    assert isinstance(kind, Bits)
    return kind


def is_aggregate(kind: Type) -> bool:
    """Tell whether a value has parts that are changed one by one: a header, a struct, a stack."""
    return isinstance(kind, Composite | Stack)


def substitute(kind: Type, bindings: Mapping[Variable, Type]) -> Type:
    """Return a type with its type parameters replaced, as far as they are bound."""
    if isinstance(kind, Variable):
        return bindings.get(kind, kind)
    if isinstance(kind, Extern) and kind.arguments:
        return kind.declaration.bind(tuple(substitute(one, bindings) for one in kind.arguments))
    if isinstance(kind, Tuple):
        return tuple_of(tuple(substitute(one, bindings) for one in kind.items))
    if isinstance(kind, Stack):
        return stack_of(substitute(kind.item, bindings), kind.size)
    if isinstance(kind, Callable):
        parameters = [(name, way, substitute(one, bindings)) for name, way, one in kind.parameters]
        new = Callable(kind.kind, kind.name, parameters, substitute(kind.returns, bindings), (), kind.node)
        new.optional = kind.optional
        return new
    return kind


def unify(pattern: Type, actual: Type, bindings: dict[Variable, Type]) -> bool:
    """Bind the type parameters of ``pattern`` so that it becomes ``actual``; tell whether that can be."""
    if isinstance(pattern, Variable):
        if pattern in bindings and bindings[pattern] is not UNKNOWN:
            return same(bindings[pattern], actual)
        bindings[pattern] = actual
        return True
    if actual is UNKNOWN or pattern is UNKNOWN:
        return True
    if isinstance(pattern, Extern) and isinstance(actual, Extern):
        return pattern.declaration is actual.declaration and all(
            unify(one, other, bindings) for one, other in zip(pattern.arguments, actual.arguments, strict=False)
        )
    if isinstance(pattern, Tuple) and isinstance(actual, Tuple):
        return len(pattern.items) == len(actual.items) and all(
            unify(one, other, bindings) for one, other in zip(pattern.items, actual.items, strict=False)
        )
    if isinstance(pattern, Callable) and isinstance(actual, Callable):
        return pattern.kind == actual.kind and _unify_parameters(pattern, actual, bindings)
    return same(pattern, actual)


def _unify_parameters(pattern: Callable, actual: Callable, bindings: dict[Variable, Type]) -> bool:
    """Unify parameter by parameter; ``actual`` may leave out those that ``pattern`` says are optional."""
    given = iter([*actual.parameters, None])
    now = next(given)
    for name, way, kind in pattern.parameters:
        if now is not None and now[1] == way and unify(kind, now[2], bindings):
            now = next(given)
        elif name not in pattern.optional:
            return False
    return now is None


def same(one: Type, other: Type) -> bool:
    """Tell whether two types are the same; ``_`` is the same as any."""
    if isinstance(one, Extern) and isinstance(other, Extern) and one.declaration is other.declaration:
        return all(same(first, second) for first, second in zip(one.arguments, other.arguments, strict=True))
    return one is other or one is UNKNOWN or other is UNKNOWN
