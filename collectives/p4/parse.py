"""Tokens to a syntax tree: runs lark over the grammar. The only module that imports lark's parser.

``tree.py`` holds what makes the nodes, one method a rule of ``grammar.lark``.
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterator
from typing import Any

import lark
import lark.lexer

from collectives.p4 import ast
from collectives.p4.classify import classify
from collectives.p4.errors import P4Error, Position
from collectives.p4.lexer import NAME, Token
from collectives.p4.scope import refusal
from collectives.p4.tree import TreeBuilder

# How an error names a kind of token; others are named by their text.
_SPOKEN = {
    "NAME": "a name",
    "TYPE_NAME": "a type",
    "NUMBER": "a number",
    "STRING": "a string",
    "AT_NAME": "@name(...)",
    "_LANGLE": "<",
    "_RANGLE": ">",
    "BINARY": "an operator",
    "COMPOUND": "an assignment",
    "DIRECTION": "in, out or inout",
    "$END": "the end of the file",
}
_MAX_NAMED = 6


class _Lexer(lark.lexer.Lexer):
    """Hands lark the tokens that the preprocessor has made already."""

    def __init__(self, lexer_conf: Any) -> None:
        self.words = {
            terminal.pattern.value: terminal.name for terminal in lexer_conf.terminals if terminal.pattern.type == "str"
        }

    def lex(self, tokens: Any, parser_state: Any = None) -> Iterator[lark.Token]:
        """Yield the tokens under the names of the grammar."""
        return classify(tokens, self.words)


@functools.cache
def _parser() -> lark.Lark:
    grammar = (importlib.resources.files("collectives.p4") / "grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer=_Lexer, transformer=TreeBuilder())


@functools.cache
def _spoken() -> dict[str, str]:
    """Return name -> what an error calls it, for every token of the grammar."""
    names = {
        terminal.name: terminal.pattern.value for terminal in _parser().terminals if terminal.pattern.type == "str"
    }
    return names | _SPOKEN


def parse(tokens: list[Token], path: str) -> list[ast.Node]:
    """Return the declarations of a preprocessed source.

    Parameters
    ----------
    tokens : list of Token
        What the preprocessor put out.
    path : str
        The source, for an error at its end.

    Raises
    ------
    P4Error
        Where the source departs from the grammar; the message names what could stand there.
    """
    try:
        tree: Any = _parser().parse(tokens)
        return list(tree)
    except lark.UnexpectedToken as error:
        token = error.token
        expected = _expected(set(error.accepts or error.expected))
        if token.type == "$END":
            position = tokens[-1].position if tokens else Position(path, 1, 1)
            raise P4Error(position, f"the source ends here, but {expected} must follow") from None
        place: Any = token.start_pos
        names = set(error.accepts or error.expected)
        raise _not_a_type(tokens, place, token, names) or P4Error(place, _message(token, expected)) from None


def _message(token: lark.Token, expected: str) -> str:
    """Say what is wrong about a token that does not fit."""
    if hint := refusal(str(token)):
        return hint
    if token.type in ("NAME", "TYPE_NAME") and expected == "a number or (":
        return f"a width that is no plain number stands in parentheses; write ({token})"
    if token.isidentifier() and token.type not in ("NAME", "TYPE_NAME", "STRING") and "a name" in expected:
        return f"{token} is a word of P4 and cannot be a name; rename it"
    kind = "type " if token.type == "TYPE_NAME" else ""
    return f"unexpected {kind}'{token}'; here {expected} may stand"


def _not_a_type(tokens: list[Token], place: Position, token: lark.Token, names: set[str]) -> P4Error | None:
    """Return the error for a name that stands where a type does, and is declared as none."""
    if token.type != "NAME" or refusal(str(token)):
        return None
    hint = "is not declared as a type; declare it, or include the file that does"
    if "TYPE_NAME" in names and "NAME" not in names:
        return P4Error(place, f"{token} {hint}")
    at = next((index for index, one in enumerate(tokens) if one.position == place and one.text == token), 0)
    before = tokens[at - 1]
    if at and before.kind == NAME and before.text not in _parser_words():
        return P4Error(before.position, f"{before.text} {hint}")
    return None


@functools.cache
def _parser_words() -> frozenset[str]:
    """Return the words that the grammar knows."""
    return frozenset(_spoken().values()) | {"in", "out", "inout"}


def _expected(names: set[str]) -> str:
    """List what could stand somewhere, the most telling first."""
    spoken = sorted({_spoken().get(name, name) for name in names}, key=lambda text: (not text.startswith("a "), text))
    if len(spoken) > _MAX_NAMED:
        if "BINARY" in names:  # in the middle of an expression: what ends it tells more than all operators
            operators = {_spoken()[name] for name in ("PLUS", "MINUS", "LESS", "GREATER")}
            spoken = [text for text in spoken if text not in operators]
        spoken = spoken[:_MAX_NAMED] + ["..."]
    return " or ".join([", ".join(spoken[:-1]), spoken[-1]] if len(spoken) > 1 else spoken)
