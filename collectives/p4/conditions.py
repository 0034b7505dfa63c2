"""Evaluates the condition of ``#if``, whose macros are expanded already. Also holds the precedence of P4's operators.

Used by the preprocessor, and for the precedence by the parser. Imports the lexer and the errors.
"""

from __future__ import annotations

from collections.abc import Callable

from collectives.p4.errors import P4Error, Position
from collectives.p4.lexer import NAME, NUMBER, Token

# Operators that stand between two operands, the weakest first. & ^ | bind tighter than comparisons do, unlike in C.
PRECEDENCE: dict[str, int] = {
    operator: level
    for level, operators in enumerate(
        (
            ("||",),
            ("&&",),
            ("==", "!="),
            ("<", ">", "<=", ">="),
            ("|",),
            ("^",),
            ("&",),
            ("<<", ">>"),
            ("+", "-", "++", "|+|", "|-|"),
            ("*", "/", "%"),
        )
    )
    for operator in operators
}
# In a condition they have C's order.
_C_PRECEDENCE = PRECEDENCE | {"|": 1.1, "^": 1.2, "&": 1.3}

_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda a, b: int(bool(a) or bool(b)),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "<<": lambda a, b: a << min(b, 64),
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if a * b >= 0 else -(-a // b),
    "%": lambda a, b: a - b * (a // b if a * b >= 0 else -(-a // b)),
}


def number_value(text: str) -> int:
    """Return the value of a P4 number without its width: ``0x1F``, ``0b10_01``, ``0o17``, ``1_000``."""
    digits = text.replace("_", "")
    base = {"0x": 16, "0b": 2, "0o": 8, "0d": 10}.get(digits[:2].lower())
    return int(digits[2:], base) if base else int(digits)


def evaluate(position: Position, tokens: list[Token]) -> int:
    """Return the value of a condition; a name that is no macro is 0, as in C.

    Raises
    ------
    P4Error
        If it is no expression of whole numbers.
    """
    reader = _Reader(position, tokens)
    value = reader.conditional()
    if reader.index != len(tokens):
        raise P4Error(reader.here(), f"unexpected {tokens[reader.index].text} in the condition of #if")
    return value


class _Reader:
    """Reads a condition from left to right."""

    def __init__(self, position: Position, tokens: list[Token]) -> None:
        self.position = position
        self.tokens = tokens
        self.index = 0

    def here(self) -> Position:
        """The place of the next token."""
        return self.tokens[self.index].position if self.index < len(self.tokens) else self.position

    def peek(self) -> str:
        """The text of the next token; empty at the end."""
        return self.tokens[self.index].text if self.index < len(self.tokens) else ""

    def expect(self, text: str) -> None:
        """Go past a token that must stand here."""
        if self.peek() != text:
            raise P4Error(self.here(), f"the condition of #if lacks {text}")
        self.index += 1

    def conditional(self) -> int:
        """A whole condition."""
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.index += 1
        first = self.conditional()
        self.expect(":")
        second = self.conditional()
        return first if condition else second

    def binary(self, level: float) -> int:
        """Operands and operators down to a level of precedence."""
        value = self.unary()
        while (operator := self.peek()) in _OPERATIONS and _C_PRECEDENCE[operator] >= level:
            position = self.here()
            self.index += 1
            right = self.binary(_C_PRECEDENCE[operator] + 0.05)
            if operator in ("/", "%") and right == 0:
                raise P4Error(position, "division by zero in the condition of #if")
            if operator in ("<<", ">>") and right < 0:
                raise P4Error(position, "a negative shift in the condition of #if")
            value = _OPERATIONS[operator](value, right)
        return value

    def unary(self) -> int:
        """An operand with what stands before it."""
        token = self.peek()
        position = self.here()
        self.index += 1
        if token == "!":
            return int(not self.unary())
        if token == "-":
            return -self.unary()
        if token == "+":
            return self.unary()
        if token == "~":
            return ~self.unary()
        if token == "(":
            value = self.conditional()
            self.expect(")")
            return value
        if self.index <= len(self.tokens):
            kind = self.tokens[self.index - 1].kind
            if kind == NUMBER and "w" not in token and "s" not in token:
                return number_value(token)
            if kind == NAME:
                return 0
        raise P4Error(position, f"the condition of #if needs a whole number, not {token or 'nothing'}")
