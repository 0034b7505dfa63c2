"""The checker: everything that can be wrong with a program is found here, before it runs.

``check`` takes the declarations of a source in order, and annotates their tree for the compiler. What is in which file
says ``check_base.py``.
"""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check_base import ExternKind
from collectives.p4.check_tables import TableChecker
from collectives.p4.errors import counted
from collectives.p4.scope import Scope, Symbol


class Checker(TableChecker):
    """The part of the checker for declarations."""

    def check(self, declarations: list[ast.Node]) -> None:
        """Check a source."""
        for node in declarations:
            self.declaration(node)

    def declaration(self, node: ast.Node) -> None:
        """Check one declaration of the source, or of a control or parser."""
        getattr(self, f"_declare_{type(node).__name__.lower()}")(node)

    def _declare(self, kind: str, node: ast.Declaration, of: t.Type, value: Any = None) -> Symbol:
        is_global = self.scope is self.globals
        return self.scope.declare(Symbol(kind, node.name, of, node.position, node, value, is_global=is_global))

    # ---- types

    def _declare_fields(self, node: ast.Fields) -> None:
        if node.type_parameters:
            self.fail(node, f"{node.name} has type parameters, which are outside the subset; write a {node.kind} each")
        fields: dict[str, t.Type] = {}
        for field in node.fields:
            if field.name in fields:
                self.fail(field, f"{node.name} has two fields {field.name}; rename one")
            fields[field.name] = kind = self.resolve(field.type)
            self._field(node, field, kind)
        composite = t.Composite(node.name, node.kind, fields)
        if node.kind == "header" and composite.width % 8:
            self.fail(
                node,
                f"header {node.name} has {counted(composite.width, 'bit')}, and BMv2 takes whole bytes; "
                f"add a field of {counted(-composite.width % 8, 'bit')}",
            )
        self._declare("type", node, composite)

    def _field(self, node: ast.Fields, field: ast.Field, kind: t.Type) -> None:
        if node.kind == "header":
            if isinstance(kind, t.Composite | t.Stack | t.Tuple) or t.width_of(kind) is None:
                self.fail(field, f"a field of a header is bit<W>, int<W>, varbit<W>, bool or an enum<>, not {kind}")
        elif isinstance(kind, t.Varbit):
            self.fail(field, "varbit is for headers")
        else:
            self._storable(field, kind)

    def _declare_enum(self, node: ast.Enum) -> None:
        under = None
        if node.type is not None:
            kind = t.bare(self.resolve(node.type))
            if not isinstance(kind, t.Bits):
                self.fail(node.type, f"the values of an enum are bit<W> or int<W>, not {kind}")
            under = kind
        members: dict[str, int] = {}
        for number, (name, expression, position) in enumerate(node.members):
            if name in members:
                self.fail(position, f"enum {node.name} has two members {name}; rename one")
            value: Any = number
            if under is not None:
                assert expression is not None
                value = self.convert(expression, under, f"{node.name}.{name}").value
                if value is None:
                    self.fail(expression, f"{node.name}.{name} must be known before the program runs; write a number")
            members[name] = value
        self._declare("type", node, t.Enum(node.name, under, members))

    def _declare_alias(self, node: ast.Alias) -> None:
        kind = self.resolve(node.type)
        if node.is_new:
            if not isinstance(t.bare(kind), t.Bits) and kind is not t.BOOL:
                self.fail(node, f"type makes a new type of bit<W>, int<W> or bool, and this is {kind}; use typedef")
            kind = t.New(node.name, kind)
        self._declare("type", node, kind)

    def _declare_members(self, node: ast.Members) -> None:
        for name in node.members:
            if node.name == "match_kind":
                self.match_kinds.add(name)
            elif name in self.errors:
                self.fail(node, f"error.{name} is declared already; remove it")
            else:
                self.errors[name] = len(self.errors)

    # ---- constants, variables, instances

    def _declare_constant(self, node: ast.Constant) -> None:
        self._on_constant(node)

    def _declare_variable(self, node: ast.Variable) -> None:
        self._on_variable(node)

    def _declare_instance(self, node: ast.Instance) -> None:
        kind = self.resolve(node.type)
        if isinstance(kind, t.Extern):
            self._make_extern(node, kind)
        elif isinstance(kind, t.Callable) and kind.kind in ("control", "parser"):
            if kind.node.body is None if kind.kind == "control" else kind.node.states is None:
                self.fail(node, f"{kind} is only a type of {kind.kind}; make one that has a body")
            if kind.kind == "parser" and self.architecture != "tna":
                self.fail(node, "parsers within others are outside the subset; write the states into the one parser")
            if self.scope is self.globals:
                self.fail(node, f"a {kind.kind} is made within a control; at the top stands only the package")
            self._arguments(node, t.Callable(kind.kind, kind.name, kind.constructor), {})  # type: ignore[arg-type]
        elif isinstance(kind, t.Callable) and kind.kind == "package":
            kind = self._make_package(node, kind)
        else:
            self.fail(node, f"{kind} is no kind of object; only externs, controls and packages are made")
        self._known_arguments(node)
        self._declare("instance", node, kind)

    def _known_arguments(self, node: ast.Instance) -> None:
        """See that the arguments of a constructor are known when the program is loaded."""
        for argument in node.arguments:
            value = argument.value
            if value is None or isinstance(value, ast.Construct) or isinstance(value.type, t.Callable | t.Extern):
                continue
            constructor = isinstance(value, ast.Name) and value.target.kind == "constructor"
            if value.value is None and not constructor:
                self.fail(value, f"what {node.name} is made with must be known before the program runs; write a const")

    def _make_extern(self, node: ast.Instance, kind: t.Extern) -> None:
        makers = kind.declaration.makers
        if not makers:
            self.fail(node, f"{kind} cannot be made by a program")
        signature = self._variant(node, makers, kind.declaration.name)  # type: ignore[arg-type]
        bindings = dict(kind.bindings)
        self._arguments(node, signature, bindings)  # type: ignore[arg-type]
        self._abstract(node, kind)
        if kind.declaration.name == "register":
            item = kind.arguments[0]
            if t.width_of(item) is None or not isinstance(t.bare(item), t.Bits | t.Enum):
                self.fail(node, f"a register holds bit<W> or int<W> on BMv2, not {item}; use a register a field")

    def _abstract(self, node: ast.Instance, kind: t.Extern) -> None:
        """Check the functions that an object must be given."""
        abstract = kind.declaration.abstract
        given = {function.name for function in node.functions}
        if given != abstract.keys():
            wanted = ", ".join(abstract) or "none"
            self.fail(node, f"{kind} is made with the functions {wanted}, and this gives {', '.join(given) or 'none'}")
        for function in node.functions:
            expected = t.substitute(abstract[function.name], kind.bindings)
            assert isinstance(expected, t.Callable)
            signature = self._signature("function", function, function.parameters)
            signature.returns = self.resolve(function.returns)
            expected.kind = "function"
            if signature.returns is not expected.returns or not t.unify(expected, signature, {}):
                wanted = ", ".join(f"{way} {one}".strip() for _, way, one in expected.parameters)
                self.fail(function, f"{function.name} of {kind} is {expected.returns} {function.name}({wanted})")
            assert function.body is not None
            self._body("action", signature, function.body)

    def _make_package(self, node: ast.Instance, kind: t.Callable) -> t.Callable:
        """Check the package that the program is: its parsers and controls fit together."""
        bindings: dict[t.Variable, t.Type] = {}
        if len(node.arguments) != len(kind.parameters):
            self.fail(
                node, f"{kind} takes {counted(len(kind.parameters), 'argument')}, and this gives {len(node.arguments)}"
            )
        for argument, (name, _, wanted) in zip(node.arguments, kind.parameters, strict=False):
            value = argument.value
            if isinstance(value, ast.Construct):
                actual = value.type = self._made(value)
            elif isinstance(value, ast.Name):
                actual = self.expression(value)
            else:
                self.fail(argument, f"{kind} is made of parsers and controls, as in MyIngress()")
            if not t.unify(wanted, actual, bindings):
                self.fail(argument, self._misfit(actual, t.substitute(wanted, bindings), name))
        made = t.substitute(kind, bindings)
        assert isinstance(made, t.Callable)
        return made

    def _made(self, value: ast.Construct) -> t.Type:
        made = self.resolve(value.of)
        if not isinstance(made, t.Callable) or made.kind not in ("parser", "control"):
            self.fail(value, f"{made} is no parser or control")
        if made.constructor or value.arguments:
            self.fail(value, f"{made} of the package is made without arguments; give it none")
        if getattr(made.node, "body" if made.kind == "control" else "states") is None:
            self.fail(value, f"{made} has no body; pass one that has")
        return made

    def _misfit(self, actual: t.Type, wanted: t.Type, name: str) -> str:
        """Say how a parser or control differs from what the package wants."""
        if not isinstance(actual, t.Callable) or not isinstance(wanted, t.Callable) or actual.kind != wanted.kind:
            return f"{actual} does not fit as {name}; pass a {getattr(wanted, 'kind', wanted)}"

        def shape(one: t.Callable) -> str:
            return ", ".join(f"{way} {kind}".strip() for _, way, kind in one.parameters)

        return (
            f"{actual.kind} {actual} has the parameters ({shape(actual)}), and {name} is called with ({shape(wanted)})"
        )

    # ---- callables

    def _signature(self, kind: str, node: Any, parameters: list[ast.Parameter], generics: Any = ()) -> t.Callable:
        """Resolve parameters."""
        resolved = []
        names: set[str] = set()
        for parameter in parameters:
            if parameter.name in names:
                self.fail(parameter, f"two parameters are named {parameter.name}; rename one")
            names.add(parameter.name)
            resolved.append((parameter.name, parameter.direction, self.resolve(parameter.type)))
        signature = t.Callable(kind, node.name, resolved, type_parameters=tuple(generics), node=node)
        signature.optional = frozenset(parameter.name for parameter in parameters if parameter.is_optional)
        return signature

    def _generics(self, node: Any) -> tuple[t.Variable, ...]:
        """Open a scope with a declaration's type parameters."""
        self.scope = Scope(self.scope)
        variables = tuple(t.Variable(name) for name in node.type_parameters)
        for variable in variables:
            self.scope.declare(Symbol("type", variable.name, variable, node.position))
        return variables

    def _declare_parameters(
        self, kind: str, parameters: list[tuple[str, str, t.Type]], nodes: list[ast.Parameter]
    ) -> None:
        for (name, direction, of), node in zip(parameters, nodes, strict=False):
            symbol = Symbol(kind, name, of, node.position, node, direction=direction)
            self.scope.declare(symbol)

    def _body(self, where: str, signature: t.Callable, body: ast.Block) -> None:
        """Check the body of a function or action."""
        outer, outer_where, outer_loops = self.scope, self.where, self.loops
        self.scope, self.where, self.loops = Scope(self.scope), where, 0
        self._declare_parameters("parameter", signature.parameters, signature.node.parameters)
        signature.scope = self.scope
        self.block(body)
        self.scope, self.where, self.loops = outer, outer_where, outer_loops

    def _declare_function(self, node: ast.Function) -> None:
        outer = self.scope
        generics = self._generics(node)
        signature = self._signature("function", node, node.parameters, generics)
        signature.returns = self.resolve(node.returns)
        self.scope = outer
        if node.body is None:
            earlier = self.scope.names.get(node.name)
            symbol = Symbol("function", node.name, signature, node.position, node, is_global=True)
            if earlier is not None and earlier.kind == "function" and earlier.node.body is None:
                earlier.others.append(symbol)
            else:
                self.scope.declare(symbol)
            return
        if generics:
            self.fail(node, f"{node.name} has type parameters, which are outside the subset; write a function each")
        self.returns = signature.returns
        self._body("function", signature, node.body)
        if signature.returns is not t.VOID and not _always_returns(node.body):
            self.fail(node, f"{node.name} can end without return; end each way with one")
        self._declare("function", node, signature)

    def _declare_action(self, node: ast.Action) -> None:
        signature = self._signature("action", node, node.parameters)
        self._body("action", signature, node.body)
        self._declare("action", node, signature)

    def _declare_table(self, node: ast.Table) -> None:
        self._declare("table", node, self.table(node))

    def _declare_control(self, node: ast.Control) -> None:
        self._declare_block("control", node)

    def _declare_parser(self, node: ast.Parser) -> None:
        self._declare_block("parser", node)

    def _declare_block(self, kind: str, node: Any) -> None:
        """Declare a control or parser, and check its body where it has one."""
        outer = self.scope
        generics = self._generics(node)
        signature = self._signature(kind, node, node.parameters, generics)
        signature.constructor = self._signature(kind, node, node.constructor).parameters
        has_body = (node.body if kind == "control" else node.states) is not None
        if has_body:
            if generics:
                self.fail(node, f"{node.name} has type parameters, which are outside the subset; write a {kind} each")
            self.scope = signature.scope = Scope(self.scope)
            self._declare_parameters("constructor", signature.constructor, node.constructor)
            self._declare_parameters("parameter", signature.parameters, node.parameters)
            self.where, self.applied = kind, {}
            for inner in node.locals:
                self.declaration(inner)
                self.where = kind
            if kind == "control":
                self.block(node.body)
            else:
                self.parser_states(node)
            self.where = "global"
        self.scope = outer
        self._declare("type", node, signature)

    def _declare_package(self, node: ast.Package) -> None:
        outer = self.scope
        generics = self._generics(node)
        signature = self._signature("package", node, node.parameters, generics)
        self.scope = outer
        self._declare("type", node, signature)

    def _declare_externobject(self, node: ast.ExternObject) -> None:
        outer = self.scope
        generics = self._generics(node)
        declaration = t.ExternDeclaration(node.name, generics)
        outer.declare(Symbol("type", node.name, ExternKind(declaration), node.position, node, is_global=True))
        for parameters in node.makers:
            declaration.makers.append(self._signature("constructor", node, parameters))
        for method in node.methods:
            inner = self.scope
            variables = self._generics(method)
            signature = self._signature("method", method, method.parameters, variables)
            signature.returns = self.resolve(method.returns)
            self.scope = inner
            if method.is_abstract:
                declaration.abstract[method.name] = signature
            else:
                declaration.methods.setdefault(method.name, []).append(signature)
        self.scope = outer


def _always_returns(node: Any) -> bool:
    """Tell whether a statement cannot be left but by return."""
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, ast.Block):
        return any(_always_returns(one) for one in node.statements)
    if isinstance(node, ast.If):
        return node.otherwise is not None and _always_returns(node.then) and _always_returns(node.otherwise)
    if isinstance(node, ast.Switch):
        complete = any(isinstance(case.label, ast.Anything) for case in node.cases)
        return complete and all(case.block is None or _always_returns(case.block) for case in node.cases)
    return False
