"""Checks operators: which types may meet, and what comes out. Division is refused where p4c refuses it."""

from __future__ import annotations

from collectives.p4 import ast, fold
from collectives.p4 import types as t
from collectives.p4.check_base import CheckerBase

_SHIFT_BITS = 8  # the reference switch shifts by at most a bit<8> that is not known beforehand


class OperatorChecker(CheckerBase):
    """The part of the checker for operators and casts."""

    def _unary(self, node: ast.Unary) -> None:
        kind = self.expression(node.operand)
        if node.operator == "!":
            if kind is not t.BOOL:
                self.fail(node, f"! needs bool, and this is {kind}; compare it, as in x == 0")
        elif not isinstance(kind, t.Bits) and (kind is not t.INTEGER or node.operator == "~"):
            self.fail(node, f"{node.operator} needs bit<W> or int<W>, and this is {kind}")
        node.type = kind
        if node.operand.value is not None:
            node.value = fold.unary(node.operator, node.operand.value, kind)

    def _binary(self, node: ast.Binary) -> None:
        self.expression(node.left)
        self.expression(node.right)
        operator = node.operator
        if operator in ("&&", "||"):
            for side in (node.left, node.right):
                if side.type is not t.BOOL:
                    self.fail(side, f"{operator} needs bool, and this is {side.type}; compare it, as in x != 0")
            node.type = t.BOOL
        elif operator in ("<<", ">>"):
            self._shift(node)
        elif operator == "++":
            self._concatenate(node)
        elif operator in ("==", "!="):
            self._meet(node)
            if isinstance(t.bare(node.left.type), t.Callable | t.Extern | t.Table):
                self.fail(node, f"{node.left.type} cannot be compared")
            node.type = t.BOOL
        else:
            self._arithmetic(node)
        self._fold(node)

    def _fold(self, node: ast.Binary) -> None:
        """Compute what is known already."""
        left, right = node.left.value, node.right.value
        if left is not None and right is not None and not isinstance(left, str):
            if node.operator in ("/", "%") and right == 0:
                self.fail(node, "division by zero")
            node.value = fold.binary(node.operator, left, right, node.left.type, node.right.type)

    def _meet(self, node: ast.Binary) -> t.Type:
        """Bring both operands to one type and return it."""
        for side in ("left", "right"):  # an enum with values meets a number as its value
            operand, other = getattr(node, side), node.right.type if side == "left" else node.left.type
            if (
                isinstance(operand.type, t.Enum)
                and operand.type.under
                and (other is t.INTEGER or isinstance(other, t.Bits))
            ):
                setattr(node, side, self.convert(operand, operand.type.under, f"an operand of {node.operator}"))
        left, right = node.left, node.right
        what = f"an operand of {node.operator}"
        if left.type is t.INTEGER and right.type is not t.INTEGER:
            node.left = self.convert(left, right.type, what)
        elif right.type is t.INTEGER and left.type is not t.INTEGER:
            node.right = self.convert(right, left.type, what)
        elif isinstance(left, ast.ListExpression) and isinstance(right.type, t.Composite | t.Tuple):
            node.left = self.convert(left, right.type, what)
        elif isinstance(right, ast.ListExpression) and isinstance(left.type, t.Composite | t.Tuple):
            node.right = self.convert(right, left.type, what)
        elif not t.same(left.type, right.type):
            self.fail(
                node,
                f"the operands of {node.operator} have different types, {left.type} and {right.type}; "
                f"{self._way_to(right.type, left.type, 'the second')}",
            )
        return node.left.type

    def _arithmetic(self, node: ast.Binary) -> None:
        """Check + - * / % & | ^ |+| |-| and the order comparisons."""
        kind = self._meet(node)
        operator = node.operator
        if not isinstance(kind, t.Bits) and (kind is not t.INTEGER or operator in ("|+|", "|-|")):
            self.fail(node, f"{operator} needs numbers, and these are {kind}")
        if operator in ("/", "%"):
            self._division(node)
        node.type = t.BOOL if operator in fold.COMPARISONS else kind

    def _division(self, node: ast.Binary) -> None:
        """Refuse what the reference switch cannot do while packets pass."""
        left, right = node.left.value, node.right.value
        signed = isinstance(node.left.type, t.Bits) and node.left.type.signed
        if signed or (left is not None and left < 0) or (right is not None and right < 0):
            self.fail(node, f"{node.operator} is for numbers that are not negative; cast them to bit<W> first")
        if left is not None and right is not None:
            return
        if node.operator == "/":
            self.fail(node, "/ is refused by BMv2 for numbers that a packet brings; shift with >>, or look up a table")
        if right is None or right == 0 or right & (right - 1):
            self.fail(node, "% is only for powers of two that are known beforehand, on BMv2; use a mask or a table")

    def _shift(self, node: ast.Binary) -> None:
        left, right = node.left, node.right
        amount = right.type
        if isinstance(amount, t.Enum) and amount.under:
            node.right = right = self.convert(right, amount.under, "a shift")
            amount = right.type
        if amount is not t.INTEGER and (not isinstance(amount, t.Bits) or amount.signed):
            self.fail(right, f"a shift needs a bit<W> or a number, and this is {amount}; cast it")
        if right.value is not None and right.value < 0:
            self.fail(right, "a shift by a negative number; shift the other way")
        if right.value is None and isinstance(amount, t.Bits) and amount.width > _SHIFT_BITS:
            self.fail(right, f"BMv2 shifts by at most a bit<8>, and this is {amount}; write (bit<8>) before it")
        if left.type is t.INTEGER and right.value is None:
            self.fail(left, "the number that is shifted needs a width here, as in 32w1 << x")
        if not isinstance(left.type, t.Bits) and left.type is not t.INTEGER:
            self.fail(left, f"{node.operator} shifts bit<W> or int<W>, and this is {left.type}")
        node.type = left.type

    def _concatenate(self, node: ast.Binary) -> None:
        for side in (node.left, node.right):
            if not isinstance(side.type, t.Bits):
                self.fail(side, f"++ joins bit<W> or int<W>, and this is {side.type}; give it a width")
        left, right = node.left.type, node.right.type
        if left.width + right.width > t.MAX_WIDTH:
            self.fail(node, f"++ gives {left.width + right.width} bits; the most is {t.MAX_WIDTH}")
        node.type = t.bits(left.width + right.width, left.signed)

    def _conditional(self, node: ast.Conditional) -> None:
        node.condition = self.convert(node.condition, t.BOOL, "the condition before ?")
        self.expression(node.first)
        self.expression(node.second)
        if node.first.type is t.INTEGER and node.second.type is t.INTEGER and node.condition.value is None:
            self.fail(node, "both sides of : are numbers without a width; give one its width, as in 32w1")
        if node.first.type is t.INTEGER:
            node.first = self.convert(node.first, node.second.type, "the first value after ?")
        node.second = self.convert(node.second, node.first.type, "the value after :")
        node.type = node.first.type
        if node.condition.value is not None:
            node.value = (node.first if node.condition.value else node.second).value

    def _cast(self, node: ast.Cast) -> None:
        assert node.to is not None
        to = self.resolve(node.to)
        if isinstance(node.operand, ast.StructExpression | ast.ListExpression):
            inner = self.convert(node.operand, to, "the cast")
            node.operand, node.type = inner, to
            return
        kind = self.expression(node.operand)
        if not self._castable(kind, to, node.operand.value):
            self.fail(node, f"{kind} cannot be cast to {to}; {self._way_to(kind, to)}")
        node.type = to
        if node.operand.value is not None:
            node.value = fold.cast(node.operand.value, to)

    def _castable(self, kind: t.Type, to: t.Type, value: object) -> bool:
        """Tell whether P4 has a cast between two types."""
        if t.same(kind, to):
            return True
        if isinstance(to, t.New):
            return t.same(kind, to.under) or (kind is t.INTEGER and isinstance(t.bare(to), t.Bits))
        if isinstance(kind, t.New):
            return t.same(kind.under, to)
        if isinstance(kind, t.Enum):
            return kind.under is not None and self._castable(kind.under, to, value)
        if isinstance(to, t.Enum):
            return to.under is not None and self._castable(kind, to.under, value)
        if isinstance(to, t.Bits):
            if kind is t.INTEGER:
                return True
            if kind is t.BOOL:
                return to.width == 1 and not to.signed
            return isinstance(kind, t.Bits) and (kind.signed == to.signed or kind.width == to.width)
        if to is t.BOOL:
            return kind is t.bits(1) or (kind is t.INTEGER and value in (0, 1))
        return to is t.INTEGER and isinstance(kind, t.Bits) and value is not None
