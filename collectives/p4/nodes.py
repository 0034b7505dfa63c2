"""The syntax tree, its first half: types as they are written, expressions and statements. See ast.py.

Expressions carry two annotations that the checker fills in: ``type``, and ``value`` where it is known before the
program runs (int, bool or str). Names carry ``target``, what they stand for.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from collectives.p4.errors import Position


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """Anything of the source that has a place."""

    position: Position


# ---- types as they are written ---------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True, eq=False)
class TypeNode(Node):
    """A type: ``name`` is bit, int, varbit, bool, ..., tuple, stack, ``_``, or a declared name.

    ``arguments`` are types; ``size`` is the width of a bit<W> or the length of a stack.
    """

    name: str
    arguments: list[TypeNode] = dataclasses.field(default_factory=list)
    size: Expression | None = None
    declared: bool = False


# ---- expressions -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True, eq=False)
class Expression(Node):
    """An expression; the checker sets ``type`` and, where it is known, ``value``."""

    type: Any = dataclasses.field(default=None, init=False)
    value: Any = dataclasses.field(default=None, init=False)


@dataclasses.dataclass(slots=True, eq=False)
class Number(Expression):
    """A number; ``width`` is None where it was written without one."""

    number: int
    width: int | None
    signed: bool


@dataclasses.dataclass(slots=True, eq=False)
class Text(Expression):
    """A string."""

    text: str


@dataclasses.dataclass(slots=True, eq=False)
class Truth(Expression):
    """``true`` or ``false``."""

    truth: bool


@dataclasses.dataclass(slots=True, eq=False)
class Name(Expression):
    """A variable, constant, parameter, action, table or instance."""

    name: str
    is_global: bool = False
    target: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class TypeMember(Expression):
    """``Kind.member``: of an enum, of ``error``, or the ``apply`` of a control type."""

    of: TypeNode
    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Member(Expression):
    """``base.name``."""

    base: Expression
    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Index(Expression):
    """``base[index]``."""

    base: Expression
    index: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Slice(Expression):
    """``base[high:low]``."""

    base: Expression
    high: Expression
    low: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Unary(Expression):
    """``! ~ - +`` before an operand."""

    operator: str
    operand: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Binary(Expression):
    """An operator between two operands; its position is the operator's."""

    operator: str
    left: Expression
    right: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Conditional(Expression):
    """``condition ? first : second``."""

    condition: Expression
    first: Expression
    second: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Cast(Expression):
    """``(type) operand``, and what the checker inserts where a value changes its type unasked."""

    to: TypeNode | None
    operand: Expression


@dataclasses.dataclass(slots=True, eq=False)
class ListExpression(Expression):
    """``{a, b}``."""

    items: list[Expression]


@dataclasses.dataclass(slots=True, eq=False)
class StructExpression(Expression):
    """``{x = a, y = b}``."""

    items: list[tuple[str, Expression]]


@dataclasses.dataclass(slots=True, eq=False)
class Call(Expression):
    """A call; the checker sets ``target`` to what is called, and ``arguments`` to one each parameter."""

    function: Expression
    type_arguments: list[TypeNode]
    arguments: list[Argument]
    target: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class Construct(Expression):
    """``Kind(arguments)``: an instance without a name, as the arguments of a package are."""

    of: TypeNode
    arguments: list[Argument]
    target: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class Argument(Node):
    """An argument; ``name`` is None where it goes by position, ``value`` None where it was written ``_``."""

    name: str | None
    value: Expression | None


@dataclasses.dataclass(slots=True, eq=False)
class Masked(Expression):
    """``value &&& mask`` in a set of keys."""

    item: Expression
    mask: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Ranged(Expression):
    """``low .. high`` in a set of keys."""

    low: Expression
    high: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Anything(Expression):
    """``default`` or ``_`` in a set of keys."""


# ---- statements ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True, eq=False)
class Statement(Node):
    """A statement."""


@dataclasses.dataclass(slots=True, eq=False)
class Block(Statement):
    """Statements in braces."""

    statements: list[Statement]


@dataclasses.dataclass(slots=True, eq=False)
class Assignment(Statement):
    """``target = value``; ``operator`` is ``+`` for ``+=``, empty for ``=``."""

    target: Expression
    operator: str
    value: Expression


@dataclasses.dataclass(slots=True, eq=False)
class CallStatement(Statement):
    """A call for its effect."""

    call: Expression


@dataclasses.dataclass(slots=True, eq=False)
class If(Statement):
    """``if (condition) then else otherwise``."""

    condition: Expression
    then: Statement
    otherwise: Statement | None


@dataclasses.dataclass(slots=True, eq=False)
class Return(Statement):
    """``return value``."""

    value: Expression | None


@dataclasses.dataclass(slots=True, eq=False)
class Exit(Statement):
    """``exit``."""


@dataclasses.dataclass(slots=True, eq=False)
class Break(Statement):
    """``break``."""


@dataclasses.dataclass(slots=True, eq=False)
class Continue(Statement):
    """``continue``."""


@dataclasses.dataclass(slots=True, eq=False)
class Empty(Statement):
    """A semicolon."""


@dataclasses.dataclass(slots=True, eq=False)
class SwitchCase(Node):
    """A label and its block; None where it falls through to the next."""

    label: Expression
    block: Block | None


@dataclasses.dataclass(slots=True, eq=False)
class Switch(Statement):
    """``switch (subject) {...}``."""

    subject: Expression
    cases: list[SwitchCase]


@dataclasses.dataclass(slots=True, eq=False)
class For(Statement):
    """``for (first; condition; next) body``."""

    first: list[Statement]
    condition: Expression
    next: list[Statement]
    body: Statement


@dataclasses.dataclass(slots=True, eq=False)
class ForIn(Statement):
    """``for (type name in set) body``, which is refused."""
