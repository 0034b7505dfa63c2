"""The syntax tree: what the parser makes and the checker annotates. Everything is used through this module.

Its first half, expressions and statements, is in nodes.py; declarations are here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from collectives.p4.errors import Position
from collectives.p4.nodes import Anything as Anything
from collectives.p4.nodes import Argument as Argument
from collectives.p4.nodes import Assignment as Assignment
from collectives.p4.nodes import Binary as Binary
from collectives.p4.nodes import Block as Block
from collectives.p4.nodes import Break as Break
from collectives.p4.nodes import Call as Call
from collectives.p4.nodes import CallStatement as CallStatement
from collectives.p4.nodes import Cast as Cast
from collectives.p4.nodes import Conditional as Conditional
from collectives.p4.nodes import Construct as Construct
from collectives.p4.nodes import Continue as Continue
from collectives.p4.nodes import Empty as Empty
from collectives.p4.nodes import Exit as Exit
from collectives.p4.nodes import Expression as Expression
from collectives.p4.nodes import For as For
from collectives.p4.nodes import ForIn as ForIn
from collectives.p4.nodes import If as If
from collectives.p4.nodes import Index as Index
from collectives.p4.nodes import ListExpression as ListExpression
from collectives.p4.nodes import Masked as Masked
from collectives.p4.nodes import Member as Member
from collectives.p4.nodes import Name as Name
from collectives.p4.nodes import Node as Node
from collectives.p4.nodes import Number as Number
from collectives.p4.nodes import Ranged as Ranged
from collectives.p4.nodes import Return as Return
from collectives.p4.nodes import Slice as Slice
from collectives.p4.nodes import Statement as Statement
from collectives.p4.nodes import StructExpression as StructExpression
from collectives.p4.nodes import Switch as Switch
from collectives.p4.nodes import SwitchCase as SwitchCase
from collectives.p4.nodes import Text as Text
from collectives.p4.nodes import Truth as Truth
from collectives.p4.nodes import TypeMember as TypeMember
from collectives.p4.nodes import TypeNode as TypeNode
from collectives.p4.nodes import Unary as Unary


@dataclasses.dataclass(slots=True, eq=False)
class Declaration(Node):
    """Something with a name.

    ``shown`` is the name that the control plane sees (``@name``), None where it is the same; ``symbol`` is what the
    checker made of the declaration.
    """

    name: str
    shown: str | None = dataclasses.field(default=None, init=False)
    symbol: Any = dataclasses.field(default=None, init=False)


@dataclasses.dataclass(slots=True, eq=False)
class Constant(Declaration):
    """``const type name = value``; also a statement."""

    type: TypeNode
    value: Expression


@dataclasses.dataclass(slots=True, eq=False)
class Variable(Declaration):
    """``type name = value``; also a statement."""

    type: TypeNode
    value: Expression | None


@dataclasses.dataclass(slots=True, eq=False)
class Parameter(Declaration):
    """A parameter; ``direction`` is in, out, inout or empty."""

    direction: str
    type: TypeNode
    is_optional: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class Instance(Declaration):
    """``Kind(arguments) name``, with the functions of its body where it has one."""

    type: TypeNode
    arguments: list[Argument]
    functions: list[Function]


@dataclasses.dataclass(slots=True, eq=False)
class Function(Declaration):
    """A function; ``body`` is None for an extern one."""

    returns: TypeNode
    type_parameters: list[str]
    parameters: list[Parameter]
    body: Block | None
    is_abstract: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class Action(Declaration):
    """An action."""

    parameters: list[Parameter]
    body: Block


@dataclasses.dataclass(slots=True, eq=False)
class Field(Node):
    """A field of a header or struct."""

    name: str
    type: TypeNode


@dataclasses.dataclass(slots=True, eq=False)
class Fields(Declaration):
    """A header, struct or header union; ``kind`` says which."""

    kind: str
    type_parameters: list[str]
    fields: list[Field]


@dataclasses.dataclass(slots=True, eq=False)
class Enum(Declaration):
    """An enum; with a ``type`` each member has a value."""

    type: TypeNode | None
    members: list[tuple[str, Expression | None, Position]]


@dataclasses.dataclass(slots=True, eq=False)
class Alias(Declaration):
    """``typedef`` or, where ``is_new``, ``type``."""

    type: TypeNode
    is_new: bool


@dataclasses.dataclass(slots=True, eq=False)
class Members(Declaration):
    """Members added to ``error`` or ``match_kind``; ``name`` says to which."""

    members: list[str]


@dataclasses.dataclass(slots=True, eq=False)
class Select(Node):
    """``select (keys) {...}``."""

    keys: list[Expression]
    cases: list[tuple[list[Expression], str, Position]]


@dataclasses.dataclass(slots=True, eq=False)
class State(Declaration):
    """A state of a parser; ``next`` is a state's name or a select, None where it says nothing."""

    statements: list[Any]
    next: str | Select | None
    next_position: Position


@dataclasses.dataclass(slots=True, eq=False)
class Parser(Declaration):
    """A parser, or only its type where ``states`` is None."""

    type_parameters: list[str]
    parameters: list[Parameter]
    constructor: list[Parameter]
    locals: list[Any]
    states: list[State] | None


@dataclasses.dataclass(slots=True, eq=False)
class Control(Declaration):
    """A control, or only its type where ``body`` is None."""

    type_parameters: list[str]
    parameters: list[Parameter]
    constructor: list[Parameter]
    locals: list[Any]
    body: Block | None


@dataclasses.dataclass(slots=True, eq=False)
class KeyElement(Node):
    """An element of a table's key."""

    expression: Expression
    kind: str
    shown: str | None


@dataclasses.dataclass(slots=True, eq=False)
class ActionReference(Node):
    """An action as a table names it; ``arguments`` is None where it has no parentheses."""

    name: str
    arguments: list[Argument] | None
    target: Any = None


@dataclasses.dataclass(slots=True, eq=False)
class Entry(Node):
    """An entry that the source gives a table."""

    keys: list[Expression]
    action: ActionReference


@dataclasses.dataclass(slots=True, eq=False)
class Table(Declaration):
    """A table. ``properties`` are those without a rule of their own, such as ``size``."""

    key: list[KeyElement]
    actions: list[ActionReference]
    default: ActionReference | None
    default_is_constant: bool
    entries: list[Entry]
    entries_are_constant: bool
    properties: dict[str, Expression]


@dataclasses.dataclass(slots=True, eq=False)
class Package(Declaration):
    """The type of a package."""

    type_parameters: list[str]
    parameters: list[Parameter]


@dataclasses.dataclass(slots=True, eq=False)
class ExternObject(Declaration):
    """A kind of extern object."""

    type_parameters: list[str]
    makers: list[list[Parameter]]
    methods: list[Function]
