"""Gives the preprocessor's tokens the names that the grammar uses. Used by parse.py.

Three things of P4 depend on more than the characters: a name may be a type (then ``(T) x`` is a cast), ``<`` may open
type arguments, and ``>>`` may close two of them. All are decided here, over the whole list of tokens, so that the
grammar stays LALR(1). Annotations other than ``@name("x")`` and ``@optional`` are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import lark

from collectives.p4.conditions import PRECEDENCE
from collectives.p4.errors import P4Error
from collectives.p4.lexer import NAME, PUNCTUATION, STRING, Token

_DECLARES_NEXT = {"header", "struct", "header_union", "parser", "control", "package"}
_BUILTIN_TYPES = {"bit", "int", "varbit", "bool", "tuple", "error", "string", "void"}
_COMPOUND = {"+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=", "|+|=", "|-|="}
_OPENING, _CLOSING = set("([{"), set(")]}")


def classify(tokens: list[Token], words: Mapping[str, str]) -> Iterator[lark.Token]:
    """Yield tokens for the parser; their ``start_pos`` is a :class:`Position`.

    Parameters
    ----------
    tokens : list of Token
        A whole source, preprocessed.
    words : mapping of str to str
        Text -> name of the grammar's keywords and punctuation.
    """
    tokens = _without_annotations(tokens)
    types = _declared_types(tokens)
    parameters = _type_parameters(tokens)
    # For each open type argument list, the depth of parentheses at its "<".
    open_angles: list[int] = []
    depth = 0
    for index, token in enumerate(tokens):
        text = token.text
        if token.kind == NAME:
            if text in words:
                name = words[text]
            elif text in ("in", "out", "inout"):
                name = "DIRECTION"
            else:
                name = "TYPE_NAME" if text in types or text in parameters.get(index, ()) else "NAME"
        elif token.kind != PUNCTUATION:
            name = token.kind
        elif text == "<" and _opens_types(tokens, index, types, parameters):
            open_angles.append(depth)
            name = "_LANGLE"
        elif text in (">", ">>") and open_angles and open_angles[-1] == depth:
            for _ in text:
                if open_angles:
                    open_angles.pop()
                    yield lark.Token("_RANGLE", ">", token.position)  # type: ignore[call-overload]
            continue
        else:
            depth += (text in _OPENING) - (text in _CLOSING)
            name = _punctuation(token, words)
        yield lark.Token(name, text, token.position)  # type: ignore[call-overload]


def _punctuation(token: Token, words: Mapping[str, str]) -> str:
    """Name a token of punctuation."""
    text = token.text
    if text in words:
        return words[text]
    if text in PRECEDENCE:
        return "BINARY"
    if text in _COMPOUND:
        return "COMPOUND"
    raise P4Error(token.position, f"unexpected {text}; it has no meaning in P4 outside the preprocessor")


def _without_annotations(tokens: list[Token]) -> list[Token]:
    """Leave annotations out; ``@name("x")`` becomes one token of the kind AT_NAME with the text x."""
    if not any(token.text == "@" for token in tokens):
        return tokens
    out: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.text != "@" or token.kind != PUNCTUATION:
            out.append(token)
            continue
        if index >= len(tokens) or tokens[index].kind != NAME:
            raise P4Error(token.position, '@ begins an annotation and needs a name, as in @name("x")')
        name = tokens[index]
        index += 1
        body: list[Token] = []
        if index < len(tokens) and tokens[index].text in ("(", "["):
            end = _matching(tokens, index)
            body = tokens[index + 1 : end]
            index = end + 1
        if name.text == "name":
            if len(body) != 1 or body[0].kind != STRING:
                raise P4Error(name.position, '@name takes one string, as in @name("pool")')
            out.append(Token("AT_NAME", body[0].text[1:-1], name.position))
        elif name.text == "optional":
            out.append(Token("AT_OPTIONAL", "@optional", name.position))
    return out


def _matching(tokens: list[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at ``opening``."""
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].kind == PUNCTUATION:
            depth += (tokens[index].text in _OPENING) - (tokens[index].text in _CLOSING)
            if depth == 0:
                return index
    raise P4Error(tokens[opening].position, f"this {tokens[opening].text} is not closed")


def _declared_types(tokens: list[Token]) -> set[str]:
    """Collect the names that are declared as types anywhere."""
    types: set[str] = set()
    for index, token in enumerate(tokens[:-1]):
        following = tokens[index + 1]
        if token.kind != NAME:
            continue
        if (token.text in _DECLARES_NEXT and following.kind == NAME) or (
            token.text == "extern" and following.kind == NAME and _is_object(tokens, index + 2)
        ):
            types.add(following.text)
        elif token.text == "enum":
            name = index + 1
            while name + 1 < len(tokens) and tokens[name + 1].text != "{" and name < index + 8:
                name += 1
            types.add(tokens[name].text)
        elif token.text == "typedef" or (token.text == "type" and following.kind == NAME):
            name = index + 1
            while name + 1 < len(tokens) and tokens[name + 1].text != ";":
                name += 1
            types.add(tokens[name].text)
    return types


def _is_object(tokens: list[Token], index: int) -> bool:
    """Tell whether an extern's name is followed by what an object's is: a body, or type parameters."""
    return index < len(tokens) and tokens[index].text in ("{", "<")


def _type_parameters(tokens: list[Token]) -> dict[int, frozenset[str]]:
    """Find the type parameters of generic declarations: index of a token -> the names that are types there."""
    found: dict[int, frozenset[str]] = {}
    for index in range(1, len(tokens) - 3):
        if tokens[index].text != "<" or tokens[index - 1].kind != NAME or tokens[index + 1].kind != NAME:
            continue
        end = index + 1
        while tokens[end].kind == NAME and end + 2 < len(tokens) and tokens[end + 1].text == ",":
            end += 2
        if tokens[end].kind != NAME or tokens[end + 1].text != ">" or tokens[end + 2].text not in ("(", "{"):
            continue
        names = frozenset(token.text for token in tokens[index + 1 : end + 1 : 2])
        if not _is_declaration(tokens, index) or names & _BUILTIN_TYPES:
            continue
        for place in range(max(0, index - 3), _end_of_declaration(tokens, end + 2)):
            if tokens[place].text in names:
                found[place] = found.get(place, frozenset()) | names
    return found


def _is_declaration(tokens: list[Token], angle: int) -> bool:
    """Tell whether the name before an angle bracket is being declared: a type or a keyword stands before it."""
    before = tokens[angle - 2] if angle >= 2 else None
    return before is not None and ((before.kind == NAME and before.text != "return") or before.text in (">", "]"))


def _end_of_declaration(tokens: list[Token], index: int) -> int:
    """Return where a declaration ends that has a bracket at ``index``: after its body or its semicolon."""
    while index < len(tokens):
        if tokens[index].text in _OPENING:
            was_body = tokens[index].text == "{"
            index = _matching(tokens, index)
            if was_body:
                return index + 1
        elif tokens[index].text == ";":
            return index
        index += 1
    return index


def _opens_types(tokens: list[Token], index: int, types: set[str], parameters: Mapping[int, frozenset[str]]) -> bool:
    """Tell whether the ``<`` at ``index`` opens type arguments rather than compares."""
    before = tokens[index - 1].text if index else ""
    if before in ("bit", "int", "varbit", "tuple", "value_set") or before in types:
        return True
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if following is None or tokens[index - 1].kind != NAME:
        return False
    if following.text in _BUILTIN_TYPES or index + 1 in parameters:
        return True
    after = tokens[index + 2].text if index + 2 < len(tokens) else ""
    return (following.text in types and after in (">", ",", "<", "[", ">>")) or (
        following.text == "_" and after in ">,"
    )
