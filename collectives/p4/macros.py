"""Macros and their expansion, with the rules of C: arguments first, ``#`` and ``##``, and no macro inside itself.

Used by the preprocessor. Imports the lexer and the errors.
"""

from __future__ import annotations

import dataclasses

from collectives.p4.errors import P4Error, counted
from collectives.p4.lexer import NAME, NUMBER, STRING, Token, split_words


@dataclasses.dataclass
class Macro:
    """A name and what takes its place; ``parameters`` is None for a macro that is used without parentheses."""

    name: str
    parameters: list[str] | None
    body: list[Token]


class Macros:
    """The macros that are defined at some line."""

    def __init__(self) -> None:
        self._table: dict[str, Macro] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def define(self, macro: Macro) -> None:
        """Define a macro, in place of an earlier one of that name."""
        self._table[macro.name] = macro

    def undefine(self, name: str) -> None:
        """Forget a macro, if there is one of that name."""
        self._table.pop(name, None)

    def replace_defined(self, tokens: list[Token]) -> list[Token]:
        """Replace ``defined X`` and ``defined(X)`` by 1 or 0."""
        out: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            index += 1
            if token.text != "defined":
                out.append(token)
                continue
            in_parentheses = index < len(tokens) and tokens[index].text == "("
            index += in_parentheses
            if index >= len(tokens) or tokens[index].kind != NAME:
                raise P4Error(token.position, "defined takes a name, as in defined(LANES)")
            out.append(Token(NUMBER, "1" if tokens[index].text in self else "0", token.position))
            index += 1 + in_parentheses
        return out

    def expand(self, tokens: list[Token]) -> list[Token]:
        """Return the tokens with every macro replaced.

        Raises
        ------
        P4Error
            If a macro is used with a wrong number of arguments, or its parentheses are not closed.
        """
        table = self._table
        if not table:
            return list(tokens)
        out: list[Token] = []
        stack = tokens[::-1]
        while stack:
            token = stack.pop()
            macro = table.get(token.text) if token.kind == NAME else None
            if macro is None or macro.name in token.hidden:
                out.append(token)
            elif macro.parameters is None:
                stack += reversed(self._substitute(macro, {}, token, token.hidden | {macro.name}))
            elif stack and stack[-1].text == "(":
                arguments, closing = _take_arguments(token, stack)
                by_name = _match(macro, arguments, token)
                hidden = (token.hidden & closing.hidden) | {macro.name}
                stack += reversed(self._substitute(macro, by_name, token, hidden))
            else:
                out.append(token)
        return out

    def _substitute(
        self, macro: Macro, arguments: dict[str, list[Token]], use: Token, hidden: frozenset[str]
    ) -> list[Token]:
        """Return a macro's body with its arguments in place."""
        body = macro.body
        out: list[Token] = []
        expanded: dict[str, list[Token]] = {}
        index = 0
        while index < len(body):
            token = body[index]
            following = body[index + 1].text if index + 1 < len(body) else ""
            if token.text == "##" and out and index + 1 < len(body):
                right = arguments.get(following, [body[index + 1]])
                out[-1:] = _paste(out[-1], right, use, hidden)
                index += 2
            elif token.text == "#" and following in arguments:
                quoted = " ".join(part.text for part in arguments[following]).replace('"', '\\"')
                out.append(Token(STRING, f'"{quoted}"', use.position, hidden=hidden))
                index += 2
            elif token.text in arguments:
                if following == "##":  # to be pasted: as it was written, and something even when empty
                    out += arguments[token.text] or [Token(NAME, "", use.position)]
                else:
                    if token.text not in expanded:
                        expanded[token.text] = self.expand(arguments[token.text])
                    out += expanded[token.text]
                index += 1
            else:
                out.append(token.at(use.position, hidden))
                index += 1
        return [token.at(use.position, token.hidden | hidden) for token in out if token.text]


def _paste(left: Token, right: list[Token], use: Token, hidden: frozenset[str]) -> list[Token]:
    """Join the last token on the left to the first one on the right."""
    if not right:
        return [left]
    joined = left.text + right[0].text
    words = split_words(use.position.file, joined, use.position) if joined else []
    if len(words) > 1:
        raise P4Error(use.position, f"{left.text}##{right[0].text} does not make one word; see the macro {use.text}")
    return [word.at(use.position, hidden) for word in words] + right[1:]


def _take_arguments(use: Token, stack: list[Token]) -> tuple[list[list[Token]], Token]:
    """Take the arguments of a macro's use off the stack; return them and the closing parenthesis."""
    stack.pop()
    arguments: list[list[Token]] = [[]]
    depth = 0
    while stack:
        token = stack.pop()
        if token.text == ")" and depth == 0:
            return arguments, token
        if token.text == "," and depth == 0:
            arguments.append([])
            continue
        depth += (token.text in "([{") - (token.text in ")]}")
        arguments[-1].append(token)
    raise P4Error(use.position, f"the arguments of macro {use.text} are not closed; add )")


def _match(macro: Macro, arguments: list[list[Token]], use: Token) -> dict[str, list[Token]]:
    """Give each parameter its argument."""
    assert macro.parameters is not None
    if not macro.parameters and arguments == [[]]:
        return {}
    if len(arguments) != len(macro.parameters):
        raise P4Error(
            use.position,
            f"macro {macro.name} takes {counted(len(macro.parameters), 'argument')}, and this gives {len(arguments)}",
        )
    return dict(zip(macro.parameters, arguments, strict=False))
