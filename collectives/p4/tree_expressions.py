"""Makes the nodes of expressions: the part of ``tree.py`` for the last section of ``grammar.lark``.

The grammar leaves ``a + b * c`` flat; the tree is built here by precedence.
"""

from __future__ import annotations

from typing import Any

import lark

from collectives.p4 import ast
from collectives.p4.conditions import PRECEDENCE, number_value
from collectives.p4.errors import P4Error, Position

Children = list[Any]


def is_token(child: Any, name: str) -> bool:
    """Tell whether a child is a token of this name."""
    return isinstance(child, lark.Token) and child.type == name


def place(child: Any) -> Position:
    """Return where a token or a node stands."""
    return child.start_pos if isinstance(child, lark.Token) else child.position  # type: ignore[return-value]


class ExpressionBuilder(lark.Transformer):
    """The methods for expressions."""

    def flat(self, c: Children) -> ast.Expression:
        """Build the tree of operands and operators that alternate."""
        self._index = 0
        return self._climb(c, 0)

    def _climb(self, c: Children, level: int) -> ast.Expression:
        left: ast.Expression = c[self._index]
        self._index += 1
        while self._index < len(c) and PRECEDENCE[str(c[self._index])] >= level:
            operator = c[self._index]
            self._index += 1
            right = self._climb(c, PRECEDENCE[str(operator)] + 1)
            left = ast.Binary(place(operator), str(operator), left, right)
        return left

    def conditional(self, c: Children) -> ast.Conditional:
        """``a ? b : c``."""
        return ast.Conditional(c[0].position, c[0], c[1], c[2])

    def unary(self, c: Children) -> ast.Unary:
        """``-a``."""
        return ast.Unary(place(c[0]), str(c[0]), c[1])

    def cast(self, c: Children) -> ast.Cast:
        """``(bit<8>)a``."""
        return ast.Cast(c[0].position, c[0], c[1])

    def number(self, c: Children) -> ast.Number:
        """``8w0xFF``."""
        text = str(c[0])
        for letter in "ws":
            width, found, digits = text.partition(letter)
            if found:
                return self._sized(place(c[0]), int(width), number_value(digits), letter == "s")
        return ast.Number(place(c[0]), number_value(text), None, False)

    def _sized(self, position: Position, width: int, number: int, signed: bool) -> ast.Number:
        """Make a number that says its width."""
        if width == 0:
            raise P4Error(position, "a number of width 0; give it the width of what it meets")
        if number >= 1 << (width - signed):
            kind = "int" if signed else "bit"
            raise P4Error(position, f"{number} does not fit into {kind}<{width}>; widen it or write a smaller number")
        return ast.Number(position, number, width, signed)

    def string(self, c: Children) -> ast.Text:
        """``"text"``."""
        text = "".join(str(token)[1:-1] for token in c)
        return ast.Text(place(c[0]), text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\"))

    def truth(self, c: Children) -> ast.Truth:
        """``true``."""
        return ast.Truth(place(c[0]), str(c[0]) == "true")

    def variable_name(self, c: Children) -> ast.Name:
        """``x``."""
        return ast.Name(place(c[0]), str(c[0]))

    def global_name(self, c: Children) -> ast.Name:
        """``.x``."""
        return ast.Name(place(c[0]), str(c[0]), True)

    def list_expression(self, c: Children) -> ast.ListExpression:
        """``{a, b}``."""
        return ast.ListExpression(place(c[0]), c[1])

    def struct_expression(self, c: Children) -> ast.StructExpression:
        """``{x = a, y = b}``."""
        return ast.StructExpression(place(c[0]), c[1:])

    def named_expression(self, c: Children) -> tuple[str, ast.Expression]:
        """``x = a`` in a struct."""
        return str(c[0]), c[-1]

    def expressions(self, c: Children) -> Children:
        """Expressions with commas between."""
        return c

    def expressions_or_none(self, c: Children) -> Children:
        """The same, or nothing."""
        return [child for child in c if child is not None]

    def type_member(self, c: Children) -> ast.TypeMember:
        """``Kind.member``."""
        return ast.TypeMember(c[0].position, c[0], str(c[1]))

    def error_member(self, c: Children) -> ast.TypeMember:
        """``error.NoMatch``."""
        return ast.TypeMember(place(c[0]), ast.TypeNode(place(c[0]), "error"), str(c[1]))

    def construct(self, c: Children) -> ast.Construct:
        """``Kind(...)``."""
        return ast.Construct(c[0].position, c[0], c[1])

    def member(self, c: Children) -> ast.Member:
        """``a.b``."""
        return ast.Member(c[0].position, c[0], str(c[1]))

    def index(self, c: Children) -> ast.Index:
        """``a[1]``."""
        return ast.Index(c[0].position, c[0], c[1])

    def bit_slice(self, c: Children) -> ast.Slice:
        """``a[7:0]``."""
        return ast.Slice(c[0].position, c[0], c[1], c[2])

    def call(self, c: Children) -> ast.Call:
        """``f(a)``."""
        return ast.Call(c[0].position, c[0], [], c[1])

    def generic_call(self, c: Children) -> ast.Call:
        """``f<bit<8>>(a)``."""
        return ast.Call(c[0].position, c[0], c[1], c[2])

    def arguments(self, c: Children) -> list[ast.Argument]:
        """What stands between the parentheses of a call."""
        return [
            child if isinstance(child, ast.Argument) else ast.Argument(child.position, None, child)
            for child in c
            if child is not None
        ]

    def named_argument(self, c: Children) -> ast.Argument:
        """``x = a`` in a call."""
        return ast.Argument(place(c[0]), str(c[0]), c[-1])

    def anything_argument(self, c: Children) -> ast.Argument:
        """``_`` in a call."""
        return ast.Argument(place(c[0]), None, None)

    # ---- sets of keys

    def masked(self, c: Children) -> ast.Masked:
        """``a &&& b``."""
        return ast.Masked(c[0].position, c[0], c[-1])

    def ranged(self, c: Children) -> ast.Ranged:
        """``a .. b``."""
        return ast.Ranged(c[0].position, c[0], c[-1])

    def anything(self, c: Children) -> ast.Anything:
        """``default`` or ``_``."""
        return ast.Anything(place(c[0]))

    def keyset(self, c: Children) -> list[ast.Expression]:
        """The values of a case or an entry."""
        return c
