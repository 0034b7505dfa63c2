"""Checks calls: of methods, functions, actions, tables and controls, and the arguments of each."""

from __future__ import annotations

import dataclasses
from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check_expressions import ExpressionChecker
from collectives.p4.errors import counted
from collectives.p4.scope import Symbol, suggestion

# Methods of headers -> whether they change the header.
_HEADER_METHODS = {
    "isValid": False,
    "setValid": True,
    "setInvalid": True,
    "minSizeInBits": False,
    "minSizeInBytes": False,
    "maxSizeInBits": False,
    "maxSizeInBytes": False,
}
_STACK_METHODS = ("push_front", "pop_front")


@dataclasses.dataclass(eq=False)
class Target:
    """What a call calls, found by the checker for the compiler.

    ``kind`` is header, stack, extern (a method of an object), function, native (an extern function), action, table or
    control. ``base`` is what a method is called on; ``symbol`` what a name stands for; ``signature`` the parameters,
    its type parameters bound to ``bindings``.
    """

    kind: str
    name: str
    signature: t.Callable
    base: ast.Expression | None = None
    symbol: Symbol | None = None
    bindings: dict[t.Variable, t.Type] = dataclasses.field(default_factory=dict)


class CallChecker(ExpressionChecker):
    """The part of the checker for calls."""

    def _call(self, node: ast.Call) -> None:
        function = node.function
        if isinstance(function, ast.Member):
            kind = self.expression(function.base)
            self._method(node, function, kind)
        elif isinstance(function, ast.TypeMember):
            self._apply_type(node, function)
        elif isinstance(function, ast.Name):
            self._named_call(node, function)
        else:
            self.fail(node, "this cannot be called; name a function, an action or a method")

    # ---- methods

    def _method(self, node: ast.Call, function: ast.Member, kind: t.Type) -> None:
        name = function.name
        if isinstance(kind, t.Composite) and kind.kind == "header":
            self._header_method(node, function)
        elif isinstance(kind, t.Stack):
            self._stack_method(node, function)
        elif isinstance(kind, t.Extern):
            self._extern_method(node, function, kind)
        elif isinstance(kind, t.Table) and name == "apply":
            self._apply_table(node, function, kind)
        elif isinstance(kind, t.Callable) and kind.kind in ("control", "parser") and name == "apply":
            self._apply_control(node, kind, function)
        else:
            self.fail(node, f"{kind} has no method {name}")

    def _header_method(self, node: ast.Call, function: ast.Member) -> None:
        name = function.name
        if name not in _HEADER_METHODS:
            hint = suggestion(name, list(_HEADER_METHODS)) or f"there are {', '.join(_HEADER_METHODS)}"
            self.fail(node, f"a header has no method {name}; {hint}")
        if _HEADER_METHODS[name]:
            self.require_place(function.base, name)
        self._arguments(node, t.Callable("method", name, []), {})
        node.type = t.BOOL if name == "isValid" else t.VOID
        if "Size" in name:
            kind: Any = function.base.type
            size = sum(t.width_of(one) or 0 for one in kind.fields.values() if name[:3] == "max" or not _varies(one))
            node.type, node.value = t.INTEGER, size // 8 if name.endswith("Bytes") else size
        node.target = Target("header", name, t.Callable("method", name, []), function.base)

    def _stack_method(self, node: ast.Call, function: ast.Member) -> None:
        name = function.name
        if name not in _STACK_METHODS:
            self.fail(node, f"a header stack has the methods push_front and pop_front, not {name}")
        self.require_place(function.base, name)
        signature = t.Callable("method", name, [("count", "", t.INTEGER)])
        self._arguments(node, signature, {})
        value = node.arguments[0].value
        assert value is not None
        if self.constant(value, f"the count of {name}") < 0:
            self.fail(value, f"the count of {name} is negative")
        node.type = t.VOID
        node.target = Target("stack", name, signature, function.base)

    def _extern_method(self, node: ast.Call, function: ast.Member, kind: t.Extern) -> None:
        declaration, name = kind.declaration, function.name
        if name not in declaration.methods:
            hint = suggestion(name, list(declaration.methods)) or f"it has {', '.join(declaration.methods)}"
            self.fail(node, f"{kind} has no method {name}; {hint}")
        variants = declaration.methods[name]
        signature = self._variant(node, variants, f"{declaration.name}.{name}")
        bindings = dict(kind.bindings)
        self._generic(node, signature, bindings)
        node.target = Target("extern", name, signature, function.base, bindings=bindings)
        self._extern_rules(node, declaration.name, name)

    def _extern_rules(self, node: ast.Call, kind: str, name: str) -> None:
        """Check what the signature of a method does not say."""
        if kind in ("packet_in", "packet_out") and name in ("extract", "emit"):
            value = node.arguments[0].value
            if value is not None:
                self._packet_value(value, name, len(node.arguments))
        if kind == "packet_in" and name == "length":
            self.fail(node, "BMv2 refuses packet.length(); read standard_metadata.packet_length")
        if kind == "packet_in" and name == "lookahead":
            wanted = t.bare(node.type)
            if isinstance(wanted, t.Composite) and wanted.kind == "header":
                fields = list(wanted.fields.values())
            elif t.width_of(wanted) is None or isinstance(wanted, t.Composite | t.Tuple | t.Stack):
                self.fail(node, f"lookahead reads a bit<W>, an int<W> or a header, not {wanted}")
            else:
                fields = [wanted]
            if any(_varies(field) for field in fields):
                self.fail(node, f"lookahead reads no varbit; look ahead at the part of {wanted} before it")
        if kind == "packet_in" and name == "advance":
            amount = node.arguments[0].value
            if amount is not None and amount.value is not None and amount.value % 8:
                self.fail(amount, f"advance goes on by whole bytes on BMv2, and {amount.value} bits are none")
        if kind not in ("packet_in", "packet_out", "Checksum") and self.where == "parser":
            self.fail(node, f"a parser cannot use a {kind}; use it in a control")

    def _packet_value(self, value: ast.Expression, name: str, arguments: int) -> None:
        kind = value.type
        if name == "extract":
            if not isinstance(kind, t.Composite) or kind.kind != "header":
                self.fail(value, f"extract fills a header, and this is {kind}; declare it with the word header")
            varies = any(_varies(field) for field in kind.fields.values())
            if varies != (arguments == 2):
                need = "extract(header, bits) gives its varbit a size" if varies else "it has no varbit: one argument"
                self.fail(value, f"header {kind} is extracted otherwise; {need}")
        elif not _is_sendable(kind):
            self.fail(value, f"emit writes a header, a stack or a struct of these, and this is {kind}")

    # ---- tables and controls

    def _apply_table(self, node: ast.Call, function: ast.Member, kind: t.Table) -> None:
        if self.where != "control":
            self.fail(node, f"a table is applied in the apply block of a control, not in {self.here}")
        self._arguments(node, t.Callable("table", kind.name, []), {})
        base = function.base
        assert isinstance(base, ast.Name)
        earlier = self.applied.setdefault(base.target, node.position)
        if earlier != node.position:
            self.fail(
                node,
                f"{kind} is applied at {earlier} already, and BMv2 applies a table at one place only; "
                "put the branches before or after a single apply()",
            )
        node.type = t.TableResult(kind)
        node.target = Target("table", "apply", t.Callable("table", kind.name, []), symbol=base.target)

    def _apply_control(self, node: ast.Call, kind: t.Callable, function: ast.Member) -> None:
        base = function.base
        if not isinstance(base, ast.Name) or base.target.kind != "instance":
            self.fail(node, "only an instance of a control is applied")
        self._enter_control(node, kind)
        node.target = Target("control", "apply", kind, symbol=base.target)

    def _apply_type(self, node: ast.Call, function: ast.TypeMember) -> None:
        """Check Kind.apply(...), which makes an instance on the spot."""
        kind = self.resolve(function.of)
        if not isinstance(kind, t.Callable) or kind.kind != "control" or function.name != "apply":
            self.fail(node, f"{kind}.{function.name} cannot be called")
        if kind.constructor:
            self.fail(node, f"{kind} needs arguments to be made; declare an instance, as in {kind}(...) name;")
        if kind.node.body is None:
            self.fail(node, f"{kind} is only a type of control; apply a control that has a body")
        self._enter_control(node, kind)
        node.target = Target("control", "apply", kind)

    def _enter_control(self, node: ast.Call, kind: t.Callable) -> None:
        if self.where != kind.kind:
            where = "the apply block of a control" if kind.kind == "control" else "a parser"
            self.fail(node, f"a {kind.kind} is applied in {where}, not in {self.here}")
        self._arguments(node, kind, {})
        node.type = t.VOID

    # ---- names

    def _named_call(self, node: ast.Call, function: ast.Name) -> None:
        symbol = self.find(function.name, function, function.is_global)
        function.target, function.type = symbol, symbol.type
        if symbol.kind == "action":
            self._call_action(node, symbol)
        elif symbol.kind == "function":
            variants = [one.type for one in symbol.variants()]
            signature = self._variant(node, variants, symbol.name)
            bindings: dict[t.Variable, t.Type] = {}
            self._generic(node, signature, bindings)
            kind = "native" if signature.node.body is None else "function"
            node.target = Target(kind, symbol.name, signature, symbol=symbol, bindings=bindings)
            self._function_rules(node, symbol.name, kind)
        else:
            self.fail(node, f"{symbol.name} is a {symbol.kind} and cannot be called")

    def _function_rules(self, node: ast.Call, name: str, kind: str) -> None:
        if name == "verify" and kind == "native" and self.where != "parser":
            self.fail(node, "verify is for parsers; write an if here")
        outside = self.where in ("parser", "function") and self.architecture != "tna"
        if kind == "native" and outside and name not in ("verify", "log_msg"):
            self.fail(node, f"{name} is for controls and actions, and this is {self.here}")
        if kind == "native":
            self._native_rules(node, name)

    def _native_rules(self, node: ast.Call, name: str) -> None:
        """Check what the signature of an extern function does not say."""
        values = [argument.value for argument in node.arguments]
        result = values[0] if name in ("hash", "random") else values[2] if "_checksum" in name else None
        if result is not None and not isinstance(t.bare(result.type), t.Bits):
            self.fail(result, f"{name} gives bit<W>, and this is {result.type}")
        data = values[3] if name == "hash" else values[1] if "_checksum" in name else None
        if data is not None and t.width_of(data.type) is None:
            self.fail(data, f"{name} needs data with a width, and this is {data.type}; give numbers theirs, as in 8w0")

    def _call_action(self, node: ast.Call, symbol: Symbol) -> None:
        if self.where not in ("control", "action"):
            self.fail(node, f"an action is called from a control or an action, not from {self.here}")
        assert isinstance(symbol.type, t.Callable)
        self._arguments(node, symbol.type, {})
        node.type = t.VOID
        node.target = Target("action", symbol.name, symbol.type, symbol=symbol)

    # ---- arguments

    def _variant(self, node: ast.Call, variants: list[Any], name: str) -> t.Callable:
        """Choose among functions of one name by the number of arguments."""
        for variant in variants:
            if 0 <= len(variant.parameters) - len(node.arguments) <= len(variant.optional):
                return variant
        counts = " or ".join(str(len(variant.parameters)) for variant in variants)
        self.fail(
            node, f"{name} takes {counts} argument{'' if counts == '1' else 's'}, and this gives {len(node.arguments)}"
        )

    def _generic(self, node: ast.Call, signature: t.Callable, bindings: dict[t.Variable, t.Type]) -> None:
        """Find the type parameters of a call, check its arguments, set its type."""
        if node.type_arguments:
            if len(node.type_arguments) != len(signature.type_parameters):
                self.fail(node, f"{signature.name} takes {counted(len(signature.type_parameters), 'type argument')}")
            for variable, given in zip(signature.type_parameters, node.type_arguments, strict=False):
                bindings[variable] = self.resolve(given)
        self._arguments(node, signature, bindings)
        node.type = t.substitute(signature.returns, bindings)
        if isinstance(node.type, t.Variable):
            self.fail(
                node, f"the type that {signature.name} gives is not known; write it, as in {signature.name}<bit<8>>()"
            )

    def _arguments(
        self,
        node: ast.Call | ast.Construct | ast.ActionReference,
        signature: t.Callable,
        bindings: dict[t.Variable, t.Type],
    ) -> None:
        """Check the arguments of a call and put them in the order of the parameters."""
        ordered = self._order(node, signature)
        for argument, (name, _, pattern) in zip(
            ordered, signature.parameters, strict=False
        ):  # what has a type of its own comes first
            value = argument.value
            if value is not None and bindings_wanted(pattern) and not isinstance(value, ast.StructExpression):
                actual = self.expression(value)
                if actual is not t.INTEGER and not t.unify(pattern, actual, bindings):
                    wanted = t.substitute(pattern, bindings)
                    self.fail(value, f"parameter {name} of {signature.name} needs {wanted}, and this is {actual}")
        for argument, (name, direction, pattern) in zip(ordered, signature.parameters, strict=False):
            self._argument(signature, argument, name, direction, t.substitute(pattern, bindings))
        node.arguments = ordered

    def _order(self, node: ast.Call | ast.Construct | ast.ActionReference, signature: t.Callable) -> list[ast.Argument]:
        """Return one argument a parameter, whether they were given by position or by name."""
        given = node.arguments or []
        names = [name for name, _, _ in signature.parameters]
        if any(argument.name for argument in given):
            by_name = {argument.name: argument for argument in given}
            for argument in given:
                if argument.name not in names:
                    self.fail(argument, f"{signature.name} has no parameter {argument.name}; it has {', '.join(names)}")
            if len(by_name) == len(given) == len(names):
                return [by_name[name] for name in names]
        elif len(given) == len(names) or (len(given) < len(names) and signature.optional >= set(names[len(given) :])):
            return given
        wanted = f"{counted(len(names), 'argument')} ({', '.join(names)})" if names else "no arguments"
        self.fail(node, f"{signature.name} takes {wanted}, and this gives {len(given)}")

    def _argument(self, signature: t.Callable, argument: ast.Argument, name: str, direction: str, to: t.Type) -> None:
        """Check one argument."""
        what = f"parameter {name} of {signature.name}"
        value = argument.value
        if value is None:
            if direction != "out":
                self.fail(argument, f"{what} needs a value; _ is for out parameters")
            return
        if direction in ("out", "inout"):
            kind = self.expression(value)
            self.require_place(value, what)
            if isinstance(to, t.Variable):
                to = kind
            if not t.same(kind, to):
                self.fail(value, f"{what} is {direction} {to}, and this is {kind}; use a variable of that type between")
        elif isinstance(to, t.Variable):
            self.expression(value)
        else:
            argument.value = self.convert(value, to, what)


def bindings_wanted(pattern: t.Type) -> bool:
    """Tell whether a parameter's type depends on type parameters."""
    if isinstance(pattern, t.Variable):
        return True
    if isinstance(pattern, t.Extern):
        return any(bindings_wanted(one) for one in pattern.arguments)
    return False


def _is_sendable(kind: t.Type) -> bool:
    """Tell whether a value can be emitted: a header, or a struct or stack of such."""
    if isinstance(kind, t.Composite):
        return kind.kind == "header" or all(_is_sendable(field) for field in kind.fields.values())
    return isinstance(kind, t.Stack)


def _varies(kind: t.Type) -> bool:
    return isinstance(kind, t.Varbit)
