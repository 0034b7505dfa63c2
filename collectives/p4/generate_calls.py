"""Writes calls: of functions and controls, with parameters copied in and out, and of actions, which are put in place.

Scalars go by value and come back in the result. Headers and structs go by reference where no two arguments overlap,
which cannot be told from copying; else a copy goes, and comes back.
"""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.generate_base import Frame
from collectives.p4.generate_expressions import ExpressionGenerator
from collectives.p4.layouts import initial
from collectives.p4.scope import Symbol


class CallGenerator(ExpressionGenerator):
    """The part of the compiler for calls."""

    def _call(self, node: ast.Call) -> str:
        return str(getattr(self, f"_call_{node.target.kind}")(node))

    # ---- places

    def place(self, node: ast.Expression) -> str:
        """Return the text of something that can be assigned to, its indices computed once."""
        if isinstance(node, ast.Index):
            base = self.place(node.base)
            return f"{base}.items[{self.held(node.index)}]"
        if isinstance(node, ast.Member) and isinstance(node.base.type, t.Composite):
            if isinstance(node.base, ast.Name) or self._is_still(node.base):
                return self.expression(node)
            return f"{self.place(node.base)}.f_{node.name}"
        return self.expression(node)

    def store(self, target: ast.Expression, place: str, value: str) -> None:
        """Write the assignment of a value to a place (for a slice, the place of what it is a slice of)."""
        line = self.writer.line
        if isinstance(target, ast.Slice):
            low, width = target.low.value, target.high.value - target.low.value + 1
            kind = t.bare(target.base.type)
            assert isinstance(kind, t.Bits)
            kept = f"{place} & {hex(kind.mask & ~(((1 << width) - 1) << low))}"
            text = f"{kept} | {f'({value} << {low})' if low else value}"
            if kind.signed:
                half = hex(-kind.lowest)
                text = f"(({text}) ^ {half}) - {half}"
            line(f"{place} = {text}")
        elif t.is_aggregate(target.type):
            line(f"{place}.assign({value})")
        else:
            line(f"{place} = {value}")

    def place_of(self, target: ast.Expression) -> str:
        """Return the place to give to :meth:`store`."""
        return self.place(target.base if isinstance(target, ast.Slice) else target)

    # ---- functions and controls

    def call_function(self, name: str, node: ast.Call, parameters: list[Any], results: list[str]) -> None:
        """Write ``results, outs = name(arguments)`` and what copies in and out."""
        arguments: list[str] = []
        outs: list[tuple[ast.Expression | None, str, str]] = []  # where to, its place, from which variable
        for argument, (_, direction, kind) in zip(node.arguments, parameters, strict=False):
            value = argument.value
            if isinstance(kind, t.Extern):
                assert value is not None
                arguments.append(self.expression(value))
            elif t.is_aggregate(kind):
                shared = self._shares(node, value, parameters)
                arguments.append(self._aggregate_argument(value, direction, kind, shared, outs))
            elif direction in ("out", "inout"):
                variable = self.writer.name("o")
                place = self.place_of(value) if value is not None else ""
                if direction == "inout":
                    assert value is not None
                    arguments.append(self._argument_value(node, value))
                outs.append((value, place, variable))
            else:
                assert value is not None
                arguments.append(self._argument_value(node, value))
        scalars = [variable for _, _, variable in outs if variable.startswith("o_")]
        targets = results + scalars
        call = f"{name}({', '.join(arguments)})"
        self.writer.line(f"{', '.join(targets)}, = {call}" if targets else call)
        for value, place, variable in outs:
            if value is not None:
                self.store(value, place, variable)

    def _argument_value(self, node: ast.Call, value: ast.Expression) -> str:
        """Return an argument; computed now where a later argument has effects."""
        if any(
            self.acts(other.value) for other in node.arguments if other.value is not None and other.value is not value
        ):
            return self.held(value)
        return self.expression(value)

    def _shares(self, node: ast.Call, value: ast.Expression | None, parameters: list[Any]) -> bool:
        """Tell whether an argument overlaps another that the callee sees or changes in place, or could be changed."""
        for argument, (_, direction, kind) in zip(node.arguments, parameters, strict=True):
            other = argument.value
            if other is None or value is None or other is value:
                continue
            if (t.is_aggregate(kind) or direction in ("out", "inout")) and _overlap(value, other):
                return True
            if self.acts(other):  # it might change what was given before it
                return True
        return False

    def _aggregate_argument(
        self, value: ast.Expression | None, direction: str, kind: t.Type, shared: bool, outs: list[Any]
    ) -> str:
        """Return a header or struct as an argument; a copy where it is ``shared`` with another argument."""
        self.use(kind)
        if value is None:
            return initial(kind)
        if not isinstance(value, ast.Name | ast.Member | ast.Index):
            return self.fresh(value)
        place = self.place(value)
        if not shared:
            if direction == "out":
                self.writer.line(f"{place}.reset()")
            return place
        copy = self.writer.name("c")
        self.writer.line(f"{copy} = {initial(kind) if direction == 'out' else place + '.copy()'}")
        if direction in ("out", "inout"):
            outs.append((value, place, copy))
        return copy

    def _call_function(self, node: ast.Call) -> str:
        signature: t.Callable = node.target.signature
        result = self.writer.name("r")
        results = [] if signature.returns is t.VOID else [result]
        self.call_function(self.function_for(signature), node, signature.parameters, results)
        return result

    def _call_control(self, node: ast.Call) -> str:
        name, exits = self.control_function(node)
        exited = self.writer.name("x")
        self.call_function(name, node, node.target.signature.parameters, [exited] if exits else [])
        if exits:
            with self.writer.block(f"if {exited}:"):
                self.leave()
        return ""

    def function_for(self, signature: t.Callable) -> str:
        """Return the Python name of a function, which is written now if it is not yet."""
        raise AssertionError(signature)

    def control_function(self, node: ast.Call) -> tuple[str, bool]:
        """Return the function that an instance of a control became, and whether it may exit."""
        raise AssertionError(node)

    def leave(self) -> None:
        """Write what ends the whole pipeline: out parameters are copied back on the way."""
        for frame in reversed(self.frames):
            frame.copy_out()
        self.writer.line(f"return {self.results(True)}")

    # ---- actions

    def _call_action(self, node: ast.Call) -> str:
        action: ast.Action = node.target.symbol.node
        arguments = [argument.value for argument in node.arguments]
        self.inline(action, arguments)
        return ""

    def inline(self, action: ast.Action, arguments: list[Any]) -> None:
        """Write the body of an action in place.

        ``arguments`` has one value a parameter: an expression, or the text of one (data of a table's entry).
        """
        parameters: list[Symbol] = [parameter.symbol for parameter in action.parameters]
        outs: list[tuple[ast.Expression, str, str]] = []
        bound: dict[Symbol, str] = {}
        for symbol, argument in zip(parameters, arguments, strict=False):
            bound[symbol] = self._action_parameter(symbol, argument, outs)
        saved, self.names = self.names, self.names | bound

        def copy_out() -> None:
            for value, place, variable in outs:
                self.store(value, place, variable)

        self.frames.append(Frame(copy_out))
        self._action_body(action)
        self.frames.pop()
        copy_out()
        self.names = saved

    def _action_parameter(self, symbol: Symbol, argument: Any, outs: list[Any]) -> str:
        """Write what gives a parameter its first value; return its name."""
        if isinstance(argument, str):  # data of a table's entry never change
            return argument
        kind, direction = symbol.type, symbol.direction
        self.use(kind)
        name = self.writer.name(f"a_{symbol.name}")
        if argument is None:
            self.writer.line(f"{name} = {initial(kind)}")
            return name
        if direction not in ("out", "inout"):
            if argument.value is not None:
                return self.expression(argument)
            self.writer.line(f"{name} = {self.fresh(argument)}")
            return name
        place = self.place_of(argument)
        first = self.fresh(argument) if direction == "inout" else initial(kind)
        self.writer.line(f"{name} = {first}")
        outs.append((argument, place, name))
        return name

    def _action_body(self, action: ast.Action) -> None:
        """Write the body; where it has a return, within a loop that the return can break out of."""
        if not self.contains(action.body, ast.Return):
            self.statement(action.body)
            return
        frame = self.frames[-1]
        if self.contains(action.body, ast.For):
            frame.flag = self.writer.name("returned")
            self.writer.line(f"{frame.flag} = False")
        with self.writer.block("while True:"):
            self.statement(action.body)
            self.writer.line("break")

    def statement(self, node: Any) -> None:
        """Write a statement; the statements' part knows how."""
        raise AssertionError(node)

    # ---- methods of headers and stacks

    def _call_header(self, node: ast.Call) -> str:
        base = self.expression(node.target.base)
        if node.target.name == "isValid":
            return f"{base}.valid"
        self.writer.line(f"{base}.valid = {node.target.name == 'setValid'}")
        return ""

    def _call_stack(self, node: ast.Call) -> str:
        count = node.arguments[0].value
        assert count is not None
        self.writer.line(f"{self.expression(node.target.base)}.{node.target.name}({count.value})")
        return ""


def _overlap(one: ast.Expression, other: ast.Expression) -> bool:
    """Tell whether two places may share a part: one is the other, or part of it."""
    first, second = _steps(one), _steps(other)
    return first[0] is not None and all(a is b or a == b or "*" in (a, b) for a, b in zip(first, second, strict=False))


def _steps(node: ast.Expression) -> list[Any]:
    """Return a place from its variable to its last part; None first where it is no place."""
    steps: list[Any] = []
    while isinstance(node, ast.Member | ast.Index | ast.Slice):
        steps.append(node.name if isinstance(node, ast.Member) else "*")
        node = node.base
    steps.append(node.target if isinstance(node, ast.Name) else None)
    return steps[::-1]
