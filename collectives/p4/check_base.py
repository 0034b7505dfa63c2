"""The ground of the checker: scopes, errors, types as they are written, and conversions that nobody has to ask for.

The checker is one class in several files, each building on the one before: this, operators, expressions, calls,
statements, parsers, tables, declarations (``check.py``, which the rest of the package uses).
"""

from __future__ import annotations

from typing import Any, NoReturn

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.errors import P4Error, Position, counted
from collectives.p4.scope import Scope, Symbol, refusal, suggestion


class ExternKind(t.Type):
    """An extern kind as a symbol's type, before its type arguments are given."""

    def __init__(self, declaration: t.ExternDeclaration) -> None:
        self.declaration = declaration
        self.name = declaration.name


class CheckerBase:
    """State of one check, and what all parts of it need."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture  # v1model or tna: what its compiler refuses is refused
        self.globals = Scope(None)
        self.scope = self.globals
        self.errors: dict[str, int] = {}  # member of `error` -> its number
        self.match_kinds: set[str] = set()
        self.where = "global"  # parser, control, action, function: what the statements belong to
        self.loops = 0  # how many loops are open
        self.returns: t.Type = t.VOID  # what a function's return must give
        self.applied: dict[Any, Position] = {}  # table -> where the enclosing control applies it

    def fail(self, where: ast.Node | Position, message: str) -> NoReturn:
        """Raise the error."""
        raise P4Error(where if isinstance(where, Position) else where.position, message)

    @property
    def here(self) -> str:
        """What the statements at hand belong to, with its article."""
        return f"{'an' if self.where == 'action' else 'a'} {self.where}"

    # ---- names

    def find(self, name: str, where: ast.Node, is_global: bool = False) -> Symbol:
        """Return what a name stands for."""
        scope = self.globals if is_global else self.scope
        symbol = scope.find(name)
        if symbol is None:
            hint = refusal(name)
            if hint is None:
                hint = f"{name} is not declared before this line"
                hint += f"; {suggestion(name, scope.known()) or 'declare it, or include the file that does'}"
            self.fail(where, hint)
        return symbol

    # ---- expressions, handed to the parts that know them

    def expression(self, node: ast.Expression) -> t.Type:
        """Check an expression; set and return its type, and set its value where it is known."""
        if node.type is None:
            getattr(self, f"_{type(node).__name__.lower()}")(node)
        assert node.type is not None
        return node.type

    def constant(self, node: ast.Expression, what: str) -> int:
        """Return a whole number that is known before the program runs."""
        self.expression(node)
        if not isinstance(node.value, int) or isinstance(node.value, bool):
            self.fail(node, f"{what} must be known before the program runs; write a number or a const")
        return node.value

    # ---- types as they are written

    def resolve(self, node: ast.TypeNode) -> t.Type:
        """Return the type that a program wrote."""
        if node.declared:
            return self._declared_type(node)
        if node.name in ("bit", "int", "varbit"):
            return self._sized_type(node)
        if node.name == "tuple":
            return t.tuple_of(tuple(self.resolve(one) for one in node.arguments))
        if node.name == "stack":
            assert node.size is not None
            item = self.resolve(node.arguments[0])
            if not isinstance(item, t.Composite) or item.kind != "header":
                self.fail(node, f"a stack holds headers, and {item} is none; declare it with the word header")
            size = self.constant(node.size, "the size of a header stack")
            if size < 1:
                self.fail(node.size, "a header stack has at least one header; write a larger number")
            return t.stack_of(item, size)
        basic = {"bool": t.BOOL, "string": t.STRING, "error": t.ERROR, "void": t.VOID, "match_kind": t.MATCH_KIND}
        return t.UNKNOWN if node.name == "_" else basic[node.name]

    def _sized_type(self, node: ast.TypeNode) -> t.Type:
        """Resolve bit<W>, int<W>, varbit<W>, and bit and int alone."""
        if node.size is None:
            return t.bits(1) if node.name == "bit" else t.INTEGER
        width = self.constant(node.size, f"the width of {node.name}<>")
        least = 2 if node.name == "int" else 1
        if not least <= width <= t.MAX_WIDTH:
            self.fail(
                node.size, f"{node.name}<{width}> is no type here; a width lies between {least} and {t.MAX_WIDTH}"
            )
        return t.varbit(width) if node.name == "varbit" else t.bits(width, node.name == "int")

    def _declared_type(self, node: ast.TypeNode) -> t.Type:
        symbol = self.find(node.name, node)
        if symbol.kind != "type":
            self.fail(node, f"{node.name} is a {symbol.kind}, and a type is needed here")
        found: Any = symbol.type
        parameters = getattr(found, "type_parameters", ())
        if isinstance(found, ExternKind):
            found, parameters = found.declaration, found.declaration.type_parameters
        if len(parameters) != len(node.arguments) and (node.arguments or not isinstance(found, t.Callable)):
            self.fail(
                node,
                f"{node.name} takes {counted(len(parameters), 'type argument')}, and this gives {len(node.arguments)}",
            )
        arguments = [self.resolve(one) for one in node.arguments]
        if isinstance(found, t.ExternDeclaration):
            return found.bind(tuple(arguments))
        return t.substitute(found, dict(zip(parameters, arguments, strict=False))) if arguments else found

    # ---- conversions

    def convert(self, node: ast.Expression, to: t.Type, what: str) -> ast.Expression:
        """Return an expression of exactly the type ``to``, or fail; ``what`` names the place that asks for it.

        Numbers without a width take the width that is asked for, lists become structs, and a member of an enum with
        values becomes its value.
        """
        if isinstance(node, ast.StructExpression):
            return self._struct_literal(node, to, what)
        kind = self.expression(node)
        if t.same(kind, to):
            if isinstance(to, t.Unknown):
                return node
            if not isinstance(kind, t.Unknown):
                return node
        if kind is t.INTEGER and isinstance(t.bare(to), t.Bits) and not isinstance(to, t.New):
            self._sized_number(node, to)  # type: ignore[arg-type]
            return node
        if isinstance(node, ast.ListExpression) and isinstance(to, t.Composite | t.Tuple):
            return self._list_literal(node, to, what)
        if isinstance(kind, t.Enum) and kind.under is not None and t.same(kind.under, to):
            cast = ast.Cast(node.position, None, node)
            cast.type, cast.value = to, node.value
            return cast
        self.fail(node, f"{what} needs {to}, and this is {kind}; {self._way_to(kind, to)}")

    def _way_to(self, kind: t.Type, to: t.Type, it: str = "it") -> str:
        """Say how to get from one type to another."""
        one, other = t.bare(kind), t.bare(to)
        if isinstance(one, t.Bits) and isinstance(other, t.Bits):
            if one.signed != other.signed and one.width != other.width:
                return f"cast {it} twice: first to {t.bits(one.width, other.signed)}, then to {to}"
            return f"write ({to}) before {it} to convert"
        if other is t.BOOL and isinstance(one, t.Bits | t.Basic):
            return f"compare {it}, as in x != 0"
        if one is t.BOOL and isinstance(other, t.Bits):
            return "convert with (bit<1>)" if other.width == 1 else f"write (x ? {other.width}w1 : 0)"
        return "give it a value of that type"

    def _sized_number(self, node: ast.Expression, to: t.Bits) -> None:
        """Let a number without a width take one."""
        value = node.value
        if value is None:
            self.fail(node, "this number must be known before the program runs; give it a type with a width")
        if not to.lowest <= value <= to.highest:
            self.fail(node, f"{value} does not fit into {to}; widen the type, or write ({to}) before it to cut it")
        node.type = to

    def _list_literal(self, node: ast.ListExpression, to: t.Composite | t.Tuple, what: str) -> ast.Expression:
        wanted = list(to.fields.values()) if isinstance(to, t.Composite) else list(to.items)
        if len(wanted) != len(node.items):
            self.fail(
                node, f"{what} needs {counted(len(wanted), 'value')} for {to}, and this list has {len(node.items)}"
            )
        node.items = [self.convert(item, kind, what) for item, kind in zip(node.items, wanted, strict=False)]
        node.type = to
        return node

    def _struct_literal(self, node: ast.StructExpression, to: t.Type, what: str) -> ast.Expression:
        if not isinstance(to, t.Composite):
            self.fail(node, f"{what} needs {to}, and this names fields; only a struct or header has them")
        given = dict(node.items)
        for name, value in node.items:
            if name not in to.fields:
                self.fail(value, f"{to} has no field {name}; its fields are {', '.join(to.fields)}")
        missing = [name for name in to.fields if name not in given]
        if missing or len(given) != len(node.items):
            self.fail(node, f"{what} needs each field of {to} once; see {', '.join(missing) or 'the repeated one'}")
        node.items = [(name, self.convert(given[name], kind, what)) for name, kind in to.fields.items()]
        node.type = to
        return node
