"""Writes expressions: P4's operators as Python text, cut to their widths.

``expression`` returns the text; what has to happen before (calls, looks at the packet) it writes as lines first, and
keeps the order of effects: what was computed before a call is put into a variable.
"""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.fold import COMPARISONS
from collectives.p4.generate_base import MAX_WEIGHT, GeneratorBase
from collectives.p4.layouts import class_name
from collectives.p4.scope import Symbol


def literal(value: Any) -> str:
    """Return a value as Python text."""
    if isinstance(value, bool | str):
        return repr(value)
    text = hex(value) if abs(value) > 9999 else str(value)
    return f"({text})" if value < 0 else text


def wrapped(text: str, kind: t.Bits) -> str:
    """Return an expression cut to the width of a type."""
    if kind.signed:
        half = hex(-kind.lowest)
        return f"((({text}) + {half} & {hex(kind.mask)}) - {half})"
    return f"({text} & {hex(kind.mask)})"


def operation(operator: str, left: str, right: str, kind: t.Type, right_kind: t.Type) -> str:
    """Return the text of ``left operator right``; the types are those of the operands."""
    kind, right_kind = t.bare(kind), t.bare(right_kind)
    if operator in ("&&", "||"):
        return f"({left} {'and' if operator == '&&' else 'or'} {right})"
    if operator in COMPARISONS:
        if operator in ("==", "!=") and t.is_aggregate(kind):
            return f"{'' if operator == '==' else 'not '}{left}.same({right})".join("()")
        return f"({left} {operator} {right})"
    assert isinstance(kind, t.Bits)
    if operator in ("&", "|", "^", ">>", "%"):  # these cannot leave the range of the type
        return f"({left} {operator} {right})"
    if operator == "|+|" and not kind.signed:
        return f"min({left} + {right}, {hex(kind.mask)})"
    if operator == "|-|" and not kind.signed:
        return f"max({left} - {right}, 0)"
    if operator in ("|+|", "|-|"):
        return f"max(min({left} {operator[1]} {right}, {hex(kind.highest)}), {hex(kind.lowest)})"
    if operator == "++":
        assert isinstance(right_kind, t.Bits)
        low = f"({right} & {hex(right_kind.mask)})" if right_kind.signed else right
        return f"(({left} << {right_kind.width}) | {low})"
    return wrapped(f"({left} {operator} {right})", kind)  # + - * <<


class ExpressionGenerator(GeneratorBase):
    """The part of the compiler for expressions."""

    def expression(self, node: ast.Expression) -> str:
        """Return the text of an expression, after writing the lines that must come before it."""
        if node.value is not None and not isinstance(node.type, t.Callable | t.Extern):
            return literal(node.value)
        return str(getattr(self, f"_{type(node).__name__.lower()}")(node))

    def kept(self, node: ast.Expression) -> str:
        """Return the text of an expression, computed once: a name or a literal."""
        text = self.expression(node)
        if text.isidentifier() or node.value is not None:
            return text
        name = self.writer.name()
        self.writer.line(f"{name} = {text}")
        return name

    def held(self, node: ast.Expression) -> str:
        """Return the text of a scalar as it is now, whatever changes its variable before it is used."""
        text = self.expression(node)
        if node.value is not None:
            return text
        name = self.writer.name()
        self.writer.line(f"{name} = {text}")
        return name

    def fresh(self, node: ast.Expression) -> str:
        """Return the text of a value that nothing else changes: a copy, where it has parts."""
        text = self.expression(node)
        is_place = isinstance(node, ast.Name | ast.Member | ast.Index)
        return f"{text}.copy()" if t.is_aggregate(node.type) and is_place else text

    def constant(self, node: ast.Expression) -> Any:
        """Return the value of an expression that is known when the program is loaded."""
        if node.value is not None:
            return node.value
        assert isinstance(node, ast.Name)
        return self.values[node.target]

    # ---- names and parts

    def _name(self, node: ast.Name) -> str:
        symbol: Symbol = node.target
        if symbol in self.values:
            return literal(self.values[symbol])
        return self.names[symbol]

    def _member(self, node: ast.Member) -> str:
        kind = node.base.type
        if isinstance(kind, t.TableResult):
            hit = self.expression(node.base)
            return hit if node.name == "hit" else f"(not {hit})"
        if isinstance(kind, t.Stack):
            return self.stack_member(node)
        text = f"{self.expression(node.base)}.f_{node.name}"
        if t.is_aggregate(node.type) and self._is_still(node.base):
            return self.aliases.setdefault(text, f"h{len(self.aliases)}_{node.name}")
        return text

    def _is_still(self, node: ast.Expression) -> bool:
        """Tell whether a struct stays the same object while the function runs, so that its headers do."""
        while isinstance(node, ast.Member) and isinstance(node.base.type, t.Composite):
            node = node.base
        return isinstance(node, ast.Name) and self.names.get(node.target, "") in self.roots

    def stack_member(self, node: ast.Member) -> str:
        """Return the text of next or last of a header stack; parsers know how."""
        raise AssertionError(node)

    def _index(self, node: ast.Index) -> str:
        base = self.expression(node.base)
        items = f"{base}.items" if isinstance(node.base.type, t.Stack) else base
        if self.acts(node.index):
            name = self.writer.name()
            self.writer.line(f"{name} = {items}")
            items = name
        return f"{items}[{self.expression(node.index)}]"

    def _slice(self, node: ast.Slice) -> str:
        low, high = node.low.value, node.high.value
        base = self.expression(node.base)
        shifted = f"({base} >> {low})" if low else base
        kind = t.bare(node.base.type)
        assert isinstance(kind, t.Bits)
        if high == kind.width - 1 and not kind.signed:
            return shifted
        return f"({shifted} & {hex((1 << (high - low + 1)) - 1)})"

    # ---- operators

    def _unary(self, node: ast.Unary) -> str:
        operand = self.expression(node.operand)
        kind = t.bare(node.type)
        if node.operator == "!":
            return f"(not {operand})"
        assert isinstance(kind, t.Bits)
        if node.operator == "~":
            return f"(~{operand})" if kind.signed else f"({operand} ^ {hex(kind.mask)})"
        return operand if node.operator == "+" else wrapped(f"(-{operand})", kind)

    def _binary(self, node: ast.Binary) -> str:
        operator = node.operator
        if operator in ("&&", "||") and self.acts(node.right):
            name = self.writer.name()
            self.writer.line(f"{name} = {self.expression(node.left)}")
            with self.writer.block(f"if {name}:" if operator == "&&" else f"if not {name}:"):
                self.writer.line(f"{name} = {self.expression(node.right)}")
            return name
        left = self._cut(self.expression(node.left))
        if self.acts(node.right) and node.left.value is None:
            name = self.writer.name()
            self.writer.line(f"{name} = {left}{'.copy()' if t.is_aggregate(node.left.type) else ''}")
            left = name
        right = self._cut(self.expression(node.right))
        if operator == "<<" and node.right.value is not None:
            kind = t.bare(node.type)
            assert isinstance(kind, t.Bits)
            if node.right.value >= kind.width:
                return "0"
        return operation(operator, left, right, node.left.type, node.right.type)

    def _cut(self, text: str) -> str:
        """Put a long text into a variable, before Python finds its parentheses too deep."""
        if text.count("(") <= MAX_WEIGHT:
            return text
        name = self.writer.name()
        self.writer.line(f"{name} = {text}")
        return name

    def _conditional(self, node: ast.Conditional) -> str:
        condition = self.expression(node.condition)
        if not self.acts(node.first) and not self.acts(node.second):
            return f"({self.expression(node.first)} if {condition} else {self.expression(node.second)})"
        name = self.writer.name()
        with self.writer.block(f"if {condition}:"):
            self.writer.line(f"{name} = {self.fresh(node.first)}")
        with self.writer.block("else:"):
            self.writer.line(f"{name} = {self.fresh(node.second)}")
        return name

    def _cast(self, node: ast.Cast) -> str:
        inner = self.expression(node.operand)
        kind, to = t.bare(node.operand.type), t.bare(node.type)
        if isinstance(kind, t.Enum) and kind.under is not None:
            kind = kind.under
        if isinstance(to, t.Enum) and to.under is not None:
            to = to.under
        if kind is to or not isinstance(to, t.Bits):
            return f"({inner} == 1)" if to is t.BOOL and kind is not t.BOOL else inner
        if kind is t.BOOL:
            return f"int({inner})"
        assert isinstance(kind, t.Bits)
        if to.lowest <= kind.lowest and kind.highest <= to.highest:
            return inner
        return wrapped(inner, to)

    # ---- lists

    def _listexpression(self, node: ast.ListExpression) -> str:
        return self._made(node.type, node.items)

    def _structexpression(self, node: ast.StructExpression) -> str:
        return self._made(node.type, [item for _, item in node.items])

    def _made(self, kind: t.Type, items: list[ast.Expression]) -> str:
        """Return the text of a new struct, header or tuple."""
        texts = []
        for index, item in enumerate(items):
            text = self.fresh(item)
            if any(self.acts(later) for later in items[index + 1 :]) and item.value is None:
                name = self.writer.name()
                self.writer.line(f"{name} = {text}")
                text = name
            texts.append(text)
        if isinstance(kind, t.Composite):
            self.use(kind)
            return f"{class_name(kind)}.of({', '.join(texts)})"
        return f"({''.join(text + ', ' for text in texts)})"
