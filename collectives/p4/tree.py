"""Makes the nodes of the syntax tree: one method a rule of ``grammar.lark``, called by lark as it recognises the rule.

Each method takes the rule's children: tokens (whose ``start_pos`` is a :class:`Position`) and what the methods of inner
rules returned. The part for expressions is in ``tree_expressions.py``. Used by parse.py alone.
"""

from __future__ import annotations

from typing import Any

import lark

from collectives.p4 import ast
from collectives.p4.errors import P4Error, Position
from collectives.p4.tree_expressions import ExpressionBuilder, is_token, place

Children = list[Any]


def _named(children: Children) -> tuple[str | None, Children]:
    """Take @name off the front."""
    if children and is_token(children[0], "AT_NAME"):
        return str(children[0]), children[1:]
    return None, children


def _declared(node: ast.Declaration, shown: str | None) -> Any:
    node.shown = shown
    return node


class TreeBuilder(ExpressionBuilder):
    """The methods for types, declarations and statements."""

    def start(self, c: Children) -> list[ast.Node]:
        """All declarations of the source."""
        return c

    # ---- types

    def base_type(self, c: Children) -> ast.TypeNode:
        """``bit<8>``, ``bool``."""
        size = None
        if len(c) > 1:
            size = self.number(c[1:]) if is_token(c[1], "NUMBER") else c[1]
        return ast.TypeNode(place(c[0]), str(c[0]), size=size)

    def plain_type(self, c: Children) -> ast.TypeNode:
        """``ethernet_t``."""
        return ast.TypeNode(place(c[0]), str(c[0]), declared=True)

    def generic_type(self, c: Children) -> ast.TypeNode:
        """``register<bit<32>>``."""
        return ast.TypeNode(place(c[0]), str(c[0]), c[1], declared=True)

    def tuple_type(self, c: Children) -> ast.TypeNode:
        """``tuple<bit<8>, bool>``."""
        return ast.TypeNode(place(c[0]), "tuple", c[1])

    def stack_type(self, c: Children) -> ast.TypeNode:
        """``lane_t[4]``."""
        return ast.TypeNode(c[0].position, "stack", [c[0]], c[1])

    def any_type(self, c: Children) -> ast.TypeNode:
        """``_`` in the place of a type."""
        return ast.TypeNode(place(c[0]), "_")

    def type_arguments(self, c: Children) -> Children:
        """What stands between angle brackets."""
        return c

    def type_names(self, c: Children) -> list[str]:
        """The names of type parameters."""
        return [str(token) for token in c]

    def type_parameters(self, c: Children) -> list[str]:
        """``<T, D>``; an empty list where there are none."""
        return (c and c[0]) or []

    # ---- declarations

    def name(self, c: Children) -> lark.Token:
        """A name that is declared or a member."""
        return c[0]

    def constant(self, c: Children) -> ast.Constant:
        """``const bit<8> A = 1;``."""
        _, kind, name, value = c
        return ast.Constant(place(name), str(name), kind, value)

    def instance(self, c: Children) -> ast.Instance:
        """``register<bit<32>>(8) cells;``."""
        shown, c = _named(c)
        functions = c[3] if len(c) > 3 and c[3] else []
        return _declared(ast.Instance(place(c[2]), str(c[2]), c[0], c[1], functions), shown)

    def object_body(self, c: Children) -> Children:
        """The functions that an object is made with."""
        return [child for child in c if not isinstance(child, lark.Token)]

    def function(self, c: Children) -> ast.Function:
        """``bit<8> f(in bit<8> x) {...}``."""
        kind, name, type_parameters, parameters, body = c
        return ast.Function(place(name), str(name), kind, type_parameters, parameters, body)

    def action(self, c: Children) -> ast.Action:
        """``action a() {...}``."""
        shown, (_, name, parameters, body) = _named(c)
        return _declared(ast.Action(place(name), str(name), parameters, body), shown)

    def parameters(self, c: Children) -> Children:
        """What stands between the parentheses of a declaration."""
        return [child for child in c if child is not None]

    def parameter(self, c: Children) -> ast.Parameter:
        """``inout bit<8> x``."""
        optional, direction, kind, name = _named(c)[1]
        return ast.Parameter(place(name), str(name), str(direction or ""), kind, optional is not None)

    def _fields(self, kind: str, c: Children) -> ast.Fields:
        c = _named(c)[1]
        parameters = c[2] if len(c) > 3 else []
        return ast.Fields(place(c[1]), str(c[1]), kind, parameters, c[-1])

    def header_type(self, c: Children) -> ast.Fields:
        """``header h {...}``."""
        return self._fields("header", c)

    def struct_type(self, c: Children) -> ast.Fields:
        """``struct s {...}``."""
        return self._fields("struct", c)

    def union_type(self, c: Children) -> ast.Fields:
        """``header_union u {...}``, which is refused."""
        position = place(_named(c)[1][0])
        raise P4Error(position, "header unions are outside the subset; use a header each and look at isValid()")

    def fields(self, c: Children) -> Children:
        """The fields of a header or struct."""
        return c

    def field(self, c: Children) -> ast.Field:
        """``bit<8> x;``."""
        kind, name = _named(c)[1]
        return ast.Field(place(name), str(name), kind)

    def plain_enum(self, c: Children) -> ast.Enum:
        """``enum E {a, b}``."""
        _, name, members = _named(c)[1]
        return ast.Enum(place(name), str(name), None, [(str(token), None, place(token)) for token in members])

    def valued_enum(self, c: Children) -> ast.Enum:
        """``enum bit<8> E {a = 1}``."""
        _, kind, name, members = _named(c)[1]
        return ast.Enum(place(name), str(name), kind, members)

    def members(self, c: Children) -> Children:
        """Names with commas between."""
        return c

    valued_members = members

    def valued_member(self, c: Children) -> tuple[str, ast.Expression, Position]:
        """``a = 1``."""
        return str(c[0]), c[-1], place(c[0])

    def typedef(self, c: Children) -> ast.Alias:
        """``typedef bit<8> byte_t;``."""
        _, kind, name = _named(c)[1]
        return ast.Alias(place(name), str(name), kind, False)

    def new_type(self, c: Children) -> ast.Alias:
        """``type bit<9> port_t;``."""
        _, kind, name = _named(c)[1]
        return ast.Alias(place(name), str(name), kind, True)

    def error_type(self, c: Children) -> ast.Members:
        """``error {A}``."""
        return ast.Members(place(c[0]), "error", [str(token) for token in c[-1]])

    def match_kinds(self, c: Children) -> ast.Members:
        """``match_kind {a}``."""
        return ast.Members(place(c[0]), "match_kind", [str(token) for token in c[-1]])

    def constructor(self, c: Children) -> Children:
        """The second parentheses of a control or parser."""
        return c[0]

    def parser(self, c: Children) -> ast.Parser:
        """``parser P(...) {...}``, or only its type."""
        _, name, type_parameters, parameters, constructor, *body = _named(c)[1]
        members = body[0] if body else None
        states = None if members is None else [one for one in members if isinstance(one, ast.State)]
        inner = [one for one in members or [] if not isinstance(one, ast.State)]
        return ast.Parser(place(name), str(name), type_parameters, parameters, constructor or [], inner, states)

    def parser_body(self, c: Children) -> Children:
        """The locals and states."""
        return [child for child in c if not isinstance(child, lark.Token)]

    def value_set(self, c: Children) -> ast.Node:
        """``value_set<...>(4) v;``, which is refused."""
        raise P4Error(place(c[0]), "value sets are outside the subset; write the values as cases of the select")

    def state(self, c: Children) -> ast.State:
        """``state s {...}``."""
        _, name, *rest = _named(c)[1]
        target, position = rest[-1]
        statements = [child for child in rest[:-1] if isinstance(child, ast.Node)]
        return ast.State(place(name), str(name), statements, target, position or place(name))

    def transition(self, c: Children) -> tuple[Any, Position | None]:
        """``transition accept;``, or none."""
        c = [child for child in c if child is not None]
        if not c:
            return None, None
        target = c[1]
        return (target if isinstance(target, ast.Select) else str(target)), place(c[1])

    def select(self, c: Children) -> ast.Select:
        """``select (a, b) {...}``."""
        return ast.Select(place(c[0]), c[1], [child for child in c[2:] if isinstance(child, tuple)])

    def select_case(self, c: Children) -> tuple[list[ast.Expression], str, Position]:
        """``(1, _): s;``."""
        return c[0], str(c[1]), place(c[1])

    def control(self, c: Children) -> ast.Control:
        """``control C(...) {...}``, or only its type."""
        _, name, type_parameters, parameters, constructor, *body = _named(c)[1]
        inner, block = body[0] if body else ([], None)
        return ast.Control(place(name), str(name), type_parameters, parameters, constructor or [], inner, block)

    def control_body(self, c: Children) -> tuple[Children, ast.Block]:
        """The locals and the apply block."""
        return [child for child in c[:-1] if isinstance(child, ast.Node)], c[-1]

    # ---- tables

    def table(self, c: Children) -> ast.Table:
        """``table t {...}``."""
        shown, (_, name, *properties) = _named(c)
        table = ast.Table(place(name), str(name), [], [], None, False, [], False, {})
        for kind, position, value, constant in (one for one in properties if isinstance(one, tuple)):
            if kind == "key":
                table.key = value
            elif kind == "actions":
                table.actions = value
            elif kind == "default":
                table.default, table.default_is_constant = value, constant
            elif kind == "entries":
                table.entries, table.entries_are_constant = value, constant
            elif kind in table.properties:
                raise P4Error(position, f"table {name} has two properties {kind}; remove one")
            else:
                table.properties[kind] = value
        return _declared(table, shown)

    def table_key(self, c: Children) -> tuple[str, Position, Any, bool]:
        """``key = {...}``."""
        return "key", place(c[0]), [child for child in c if isinstance(child, ast.KeyElement)], False

    def key_element(self, c: Children) -> ast.KeyElement:
        """``hdr.a.b : exact;``."""
        shown = str(c[2]) if len(c) > 2 else None
        return ast.KeyElement(c[0].position, c[0], str(c[1]), shown)

    def table_actions(self, c: Children) -> tuple[str, Position, Any, bool]:
        """``actions = {...}``."""
        return "actions", place(c[0]), [child for child in c if isinstance(child, ast.ActionReference)], False

    def _reference(self, c: Children) -> ast.ActionReference:
        return ast.ActionReference(place(c[0]), str(c[0]), c[1])

    def action_reference(self, c: Children) -> ast.ActionReference:
        """``a(1);``."""
        return self._reference(_named(c)[1])

    def table_default(self, c: Children) -> tuple[str, Position, Any, bool]:
        """``default_action = a(1);``."""
        rest = [child for child in c if not is_token(child, "EQUAL")]
        return "default", place(rest[1]), self._reference(rest[2:]), rest[0] is not None

    def table_entries(self, c: Children) -> tuple[str, Position, Any, bool]:
        """``const entries = {...}``."""
        return "entries", place(c[1]), [child for child in c if isinstance(child, ast.Entry)], c[0] is not None

    def entry(self, c: Children) -> ast.Entry:
        """``(1, _) : a(2);``."""
        return ast.Entry(c[0][0].position, c[0], self._reference(c[1:3]))

    def table_property(self, c: Children) -> tuple[str, Position, Any, bool]:
        """``size = 64;``."""
        return str(c[1]), place(c[1]), c[-1], c[0] is not None

    # ---- externs and packages

    def package(self, c: Children) -> ast.Package:
        """``package P<H>(...);``."""
        _, name, type_parameters, parameters = _named(c)[1]
        return ast.Package(place(name), str(name), type_parameters, parameters)

    def extern_object(self, c: Children) -> ast.ExternObject:
        """``extern E<T> {...}``."""
        _, name, type_parameters, *members = _named(c)[1]
        makers = [member for member in members if isinstance(member, list)]
        methods = [member for member in members if isinstance(member, ast.Function)]
        return ast.ExternObject(place(name), str(name), type_parameters, makers, methods)

    def method(self, c: Children) -> ast.Function:
        """``void read(out T value);``."""
        abstract, kind, name, type_parameters, parameters = _named(c)[1]
        return ast.Function(
            place(name), str(name), kind, type_parameters, parameters, None, is_abstract=abstract is not None
        )

    def maker(self, c: Children) -> Children:
        """``register(bit<32> size);``."""
        return c[-1]

    def extern_function(self, c: Children) -> ast.Function:
        """``extern void f(in bool x);``."""
        _, kind, name, type_parameters, parameters = _named(c)[1]
        return ast.Function(place(name), str(name), kind, type_parameters, parameters, None)

    # ---- statements

    def block(self, c: Children) -> ast.Block:
        """``{...}``."""
        c = _named(c)[1]
        return ast.Block(place(c[0]), [child for child in c if not isinstance(child, lark.Token)])

    def empty(self, c: Children) -> ast.Empty:
        """``;``."""
        return ast.Empty(Position("", 0, 0))

    def variable(self, c: Children) -> ast.Variable:
        """``bit<8> x = 1;``."""
        c = [child for child in _named(c)[1] if not is_token(child, "EQUAL")]
        return ast.Variable(place(c[1]), str(c[1]), c[0], c[2])

    def assignment(self, c: Children) -> ast.Assignment:
        """``x = 1;``."""
        target, operator, value = c
        return ast.Assignment(target.position, target, str(operator)[:-1], value)

    def call_statement(self, c: Children) -> ast.CallStatement:
        """``f(x);``."""
        return ast.CallStatement(c[0].position, c[0])

    def if_statement(self, c: Children) -> ast.If:
        """``if (a) {...} else {...}``."""
        otherwise = c[4] if c[3] is not None else None
        return ast.If(place(c[0]), c[1], c[2], otherwise)

    def return_statement(self, c: Children) -> ast.Return:
        """``return x;``."""
        return ast.Return(place(c[0]), c[1])

    def exit_statement(self, c: Children) -> ast.Exit:
        """``exit;``."""
        return ast.Exit(place(c[0]))

    def break_statement(self, c: Children) -> ast.Break:
        """``break;``."""
        return ast.Break(place(c[0]))

    def continue_statement(self, c: Children) -> ast.Continue:
        """``continue;``."""
        return ast.Continue(place(c[0]))

    def switch_statement(self, c: Children) -> ast.Switch:
        """``switch (x) {...}``."""
        return ast.Switch(place(c[0]), c[1], [child for child in c if isinstance(child, ast.SwitchCase)])

    def switch_case(self, c: Children) -> ast.SwitchCase:
        """``1: {...}``."""
        return ast.SwitchCase(c[0].position, c[0], c[1])

    def for_first(self, c: Children) -> Children:
        """What comes before the first turn of a loop."""
        return [child for child in c if child is not None]

    for_next = for_first

    for_assignment = assignment
    for_call = call_statement
    for_variable = variable

    def for_statement(self, c: Children) -> ast.For:
        """``for (...; ...; ...) {...}``."""
        return ast.For(place(c[0]), c[1], c[2], c[3], c[4])

    def for_in_statement(self, c: Children) -> ast.ForIn:
        """``for (bit<8> x in 0..7) {...}``, which is refused."""
        return ast.ForIn(place(c[0]))
