"""Cuts P4 text into tokens that know where they come from. Used by the preprocessor; imports only the errors.

The preprocessor works on these tokens, not on text, so that a position survives macros and includes: a token that a
macro made has the position of the macro's use.
"""

from __future__ import annotations

import dataclasses
import re

from collectives.p4.errors import P4Error, Position

NAME = "NAME"
NUMBER = "NUMBER"
STRING = "STRING"
PUNCTUATION = "PUNCTUATION"

# The longest first.
OPERATORS = (
    "|+|=",
    "|-|=",
    "<<=",
    ">>=",
    "&&&",
    "|+|",
    "|-|",
    "...",
    "<<",
    ">>",
    "<=",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "++",
    "+=",
    "-=",
    "*=",
    "/=",
    "%=",
    "&=",
    "|=",
    "^=",
    "..",
    "##",
)
_SCANNER = re.compile(
    r"(?P<skip>[ \t\r\f\v]+|\\[ \t]*\r?\n)"
    r"|(?P<newline>\n)"
    r"|(?P<NAME>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<NUMBER>(?:[0-9]+[ws])?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|0[dD][0-9_]+|[0-9][0-9_]*))"
    r'|(?P<STRING>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<unclosed>/\*)"
    r"|(?P<PUNCTUATION>" + "|".join(re.escape(operator) for operator in OPERATORS) + r"|[-+*/%&|^~!<>=?:;,.(){}\[\]@#])"
)
_COMMENT_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclasses.dataclass(slots=True)
class Token:
    """A word of the source.

    ``start`` and ``end`` are offsets in the text of its file. ``hidden`` holds the macros that this token must not be
    expanded by any more: those whose expansion made it.
    """

    kind: str
    text: str
    position: Position
    start: int = 0
    end: int = 0
    hidden: frozenset[str] = frozenset()

    def at(self, position: Position, hidden: frozenset[str]) -> Token:
        """Return a copy that stands elsewhere."""
        return Token(self.kind, self.text, position, self.start, self.end, hidden)


@dataclasses.dataclass(slots=True)
class Line:
    """The tokens of one line, lines ending in a backslash joined to the next; ``end`` is where its text ends."""

    tokens: list[Token]
    end: int


def _blank_comment(match: re.Match[str]) -> str:
    """Replace a comment by blanks of the same shape; leave a string as it is."""
    text = match.group()
    if text.startswith('"'):
        return text
    return "".join(character if character == "\n" else " " for character in text)


def blank_comments(text: str) -> str:
    """Replace comments by blanks, so that every other character stays where it is."""
    return _COMMENT_OR_STRING.sub(_blank_comment, text)


def split_lines(file: str, text: str) -> list[Line]:
    """Cut a file, whose comments are blanked, into lines of tokens.

    Raises
    ------
    P4Error
        At a character that begins no token, such as a quote that is not closed.
    """
    lines: list[Line] = []
    tokens: list[Token] = []
    number, line_start, offset = 1, 0, 0
    size = len(text)
    match_at = _SCANNER.match
    while offset < size:
        match = match_at(text, offset)
        if match is None or match.lastgroup == "unclosed":
            raise P4Error(Position(file, number, offset - line_start + 1), _unreadable(text, offset))
        kind = match.lastgroup
        end = match.end()
        if kind == "newline":
            lines.append(Line(tokens, offset))
            tokens = []
            number += 1
            line_start = end
        elif kind == "skip":
            if text[end - 1] == "\n":
                number += 1
                line_start = end
        else:
            assert kind is not None
            tokens.append(Token(kind, match.group(), Position(file, number, offset - line_start + 1), offset, end))
        offset = end
    if tokens:
        lines.append(Line(tokens, size))
    return lines


def _unreadable(text: str, offset: int) -> str:
    """Say why no token begins at an offset."""
    if text[offset] == '"':
        return "this string does not end on its line; close it with a quotation mark"
    if text.startswith("/*", offset):
        return "this comment is not closed; end it with */"
    return f"the character {text[offset]!r} does not belong to P4; remove it"


def split_words(file: str, text: str, position: Position) -> list[Token]:
    """Cut the value of a macro that was defined outside the source; all tokens stand at ``position``."""
    return [token.at(position, frozenset()) for line in split_lines(file, text) for token in line.tokens]
