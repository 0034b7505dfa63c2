"""The values of operators: what P4 says an operation gives, on plain Python integers.

Used by the checker on what is known before the program runs; the compiler writes the same formulas as text, and the
tests compare the two. Imports the types.
"""

from __future__ import annotations

from typing import Any

from collectives.p4.types import BOOL, INTEGER, Bits, Type, bare

COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}


def binary(operator: str, left: Any, right: Any, kind: Type, right_kind: Type) -> Any:
    """Return ``left operator right``; both have the type ``kind``, but for shifts and ++.

    Parameters
    ----------
    operator : str
        As it is written.
    left, right : int or bool
        The operands, each in the range of its type.
    kind, right_kind : Type
        The types of the operands.

    Raises
    ------
    ZeroDivisionError
        For / and % by zero.
    """
    if operator in COMPARISONS:
        return _compare(operator, left, right)
    if operator == "&&":
        return left and right
    if operator == "||":
        return left or right
    kind = bare(kind)
    if operator == "++":
        right_kind = bare(right_kind)
        assert isinstance(kind, Bits) and isinstance(right_kind, Bits)
        joined = ((left & kind.mask) << right_kind.width) | (right & right_kind.mask)
        return Bits(kind.width + right_kind.width, kind.signed).wrap(joined)
    if operator in ("|+|", "|-|"):
        assert isinstance(kind, Bits)
        exact = left + right if operator == "|+|" else left - right
        return max(kind.lowest, min(kind.highest, exact))
    result = _exact(operator, left, right, kind)
    return kind.wrap(result) if isinstance(kind, Bits) else result


def _compare(operator: str, left: Any, right: Any) -> bool:
    if operator == "==":
        return bool(left == right)
    if operator == "!=":
        return bool(left != right)
    if operator == "<":
        return bool(left < right)
    if operator == "<=":
        return bool(left <= right)
    return bool(left > right) if operator == ">" else bool(left >= right)


def _exact(operator: str, left: int, right: int, kind: Type) -> int:
    """Return the result before it is cut to the width."""
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left // right
    if operator == "%":
        return left % right
    if operator == "&":
        return left & right
    if operator == "|":
        return left | right
    if operator == "^":
        return left ^ right
    if operator == "<<":
        return 0 if isinstance(kind, Bits) and right >= kind.width else left << right
    if operator == ">>":
        return left >> right
    raise AssertionError(operator)


def unary(operator: str, operand: Any, kind: Type) -> Any:
    """Return ``operator operand``."""
    if operator == "!":
        return not operand
    kind = bare(kind)
    result = {"-": lambda: -operand, "~": lambda: ~operand, "+": lambda: operand}[operator]()
    return kind.wrap(result) if isinstance(kind, Bits) else result


def cast(value: Any, to: Type) -> Any:
    """Return a value as another type sees it; whether the cast may be is the checker's affair."""
    to = bare(to)
    if to is BOOL:
        return bool(value)
    if isinstance(to, Bits):
        return to.wrap(int(value))
    if to is INTEGER:
        return int(value)
    return value


def slice_of(value: int, high: int, low: int) -> int:
    """Return bits high..low of a value."""
    return (value >> low) & ((1 << (high - low + 1)) - 1)
