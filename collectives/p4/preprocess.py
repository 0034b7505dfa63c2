"""The preprocessor: includes, macros and conditions, as a C preprocessor has them. Yields tokens for the parser.

``#include "f"`` looks beside the including file, then in the include path; ``#include <f>`` in the include path, then
among the built-in files (core.p4, v1model.p4, tna.p4). A file may be included several times, with other macros each
time. Macros may have parameters, paste with ``##`` and quote with ``#``.
"""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Mapping, Sequence

from collectives.p4.conditions import evaluate
from collectives.p4.errors import P4Error, Position
from collectives.p4.lexer import NAME, Line, Token, blank_comments, split_lines, split_words
from collectives.p4.macros import Macro, Macros

BUILTIN_FILES = ("core.p4", "v1model.p4", "tna.p4")
_MAX_DEPTH = 100


def builtin_text(name: str) -> str:
    """Return the text of a built-in file."""
    return (importlib.resources.files("collectives.p4") / "builtin" / name).read_text(encoding="utf-8")


class Preprocessor:
    """One run over one source and what it includes.

    Parameters
    ----------
    defines : mapping of str to object
        Macros without parameters, defined before the first line; ``True`` and ``None`` count as 1.
    include : sequence of path
        Folders to look in.
    """

    def __init__(self, defines: Mapping[str, object], include: Sequence[str | os.PathLike[str]]) -> None:
        self.macros = Macros()
        self.include = [os.fspath(folder) for folder in include]
        self.files: list[str] = []  # all that were read, in order
        self._output: list[Token] = []
        for name, value in defines.items():
            position = Position("<defines>", 1, 1)
            text = "1" if value is None or value is True else str(value)
            self.macros.define(Macro(name, None, split_words("<defines>", text, position)))

    def run(self, path: str | os.PathLike[str]) -> list[Token]:
        """Return the tokens of a source file, macros expanded and ``@pragma`` lines left out.

        Raises
        ------
        OSError
            If the file cannot be read.
        P4Error
            If a directive is wrong, a file that it includes is missing, or a character is none of P4's.
        """
        with open(path, encoding="utf-8") as file:
            self._file(os.fspath(path), file.read(), 0)
        return self._output

    def _file(self, name: str, text: str, depth: int) -> None:
        self.files.append(name)
        text = blank_comments(text)
        pending: list[Token] = []  # ordinary lines so far: the use of a macro may span several
        conditions: list[_Condition] = []
        for line in split_lines(name, text):
            if line.tokens and line.tokens[0].text == "#":
                if all(condition.active for condition in conditions):
                    self._flush(pending)
                self._directive(name, text, line, conditions, depth)
            elif all(condition.active for condition in conditions):
                pending += _without_pragma(line.tokens)
        self._flush(pending)
        if conditions:
            raise P4Error(conditions[-1].position, "this condition is not closed; add #endif")

    def _flush(self, pending: list[Token]) -> None:
        """Expand the ordinary lines so far and put them out."""
        self._output += self.macros.expand(pending)
        pending.clear()

    def _directive(self, name: str, text: str, line: Line, conditions: list[_Condition], depth: int) -> None:
        """Obey one line that begins with #."""
        if len(line.tokens) == 1:
            return
        word, rest = line.tokens[1], line.tokens[2:]
        active = all(condition.active for condition in conditions)
        if word.text in ("if", "ifdef", "ifndef"):
            taken = active and self._holds(word, rest)
            conditions.append(_Condition(word.position, taken, taken or not active))
        elif word.text in ("elif", "else", "endif"):
            self._next_branch(word, rest, conditions)
        elif not active:
            return
        elif word.text == "include":
            self._include(name, word, text[word.end : line.end].strip(), depth)
        elif word.text == "define":
            self.macros.define(_parse_define(word, rest))
        elif word.text == "undef":
            self.macros.undefine(_one_name(word, rest).text)
        elif word.text == "error":
            raise P4Error(word.position, f"#error {text[word.end : line.end].strip()}")
        elif word.text not in ("pragma", "warning", "line"):
            raise P4Error(
                word.position, f"#{word.text} is no directive; write #include, #define, #undef, #if or #error"
            )

    def _holds(self, word: Token, rest: list[Token]) -> bool:
        """Tell whether the condition of #if, #ifdef or #ifndef holds."""
        if word.text == "if":
            return self._evaluate(word, rest)
        return (_one_name(word, rest).text in self.macros) == (word.text == "ifdef")

    def _evaluate(self, word: Token, rest: list[Token]) -> bool:
        return evaluate(word.position, self.macros.expand(self.macros.replace_defined(rest))) != 0

    def _next_branch(self, word: Token, rest: list[Token], conditions: list[_Condition]) -> None:
        """Obey #elif, #else or #endif."""
        if not conditions:
            raise P4Error(word.position, f"#{word.text} without #if; remove it or add the #if")
        condition = conditions[-1]
        if word.text == "endif":
            conditions.pop()
            return
        if condition.in_else:
            raise P4Error(word.position, f"#{word.text} after #else; close the first condition with #endif")
        condition.in_else = word.text == "else"
        condition.active = not condition.settled and (condition.in_else or self._evaluate(word, rest))
        condition.settled = condition.settled or condition.active

    def _include(self, includer: str, word: Token, argument: str, depth: int) -> None:
        """Read another file at this place."""
        closing = {'"': '"', "<": ">"}.get(argument[:1])
        if closing is None or not argument.endswith(closing) or len(argument) < 3:
            raise P4Error(word.position, f'#include {argument} names no file; write #include "file" or #include <file>')
        if depth >= _MAX_DEPTH:
            raise P4Error(word.position, f"files include each other {_MAX_DEPTH} deep; break the circle with #ifndef")
        wanted = argument[1:-1]
        beside = [os.path.dirname(includer)] if argument[0] == '"' else []
        for folder in beside + self.include:
            path = os.path.normpath(os.path.join(folder, wanted))
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    self._file(path, file.read(), depth + 1)
                return
        if wanted not in BUILTIN_FILES:
            looked = ", ".join(folder or "." for folder in beside + self.include) or "no folder"
            raise P4Error(
                word.position,
                f"there is no file {wanted} (looked in {looked}; built in: {', '.join(BUILTIN_FILES)}); "
                "give its folder in include=[...]",
            )
        if f"<{wanted}>" not in self.files:  # these guard themselves
            self._file(f"<{wanted}>", builtin_text(wanted), depth + 1)


class _Condition:
    """An #if that is open: whether its present branch is read, and whether no later branch may be."""

    def __init__(self, position: Position, active: bool, settled: bool) -> None:
        self.position = position
        self.active = active
        self.settled = settled
        self.in_else = False


def _without_pragma(tokens: list[Token]) -> list[Token]:
    """Leave out what follows @pragma on its line."""
    for index in range(len(tokens) - 1):
        if tokens[index].text == "@" and tokens[index + 1].text == "pragma":
            return tokens[:index]
    return tokens


def _one_name(word: Token, rest: list[Token]) -> Token:
    if len(rest) != 1 or rest[0].kind != NAME:
        raise P4Error(word.position, f"#{word.text} takes one name")
    return rest[0]


def _parse_define(word: Token, rest: list[Token]) -> Macro:
    """Read what follows #define."""
    if not rest or rest[0].kind != NAME:
        raise P4Error(word.position, "#define takes a name and what to put in its place")
    name = rest[0]
    if len(rest) == 1 or rest[1].text != "(" or rest[1].start != name.end:
        return Macro(name.text, None, rest[1:])
    parameters: list[str] = []
    index = 2
    while index < len(rest) and rest[index].text != ")":
        if rest[index].kind != NAME:
            raise P4Error(rest[index].position, f"{rest[index].text} is no name of a macro parameter")
        parameters.append(rest[index].text)
        index += 1
        if index < len(rest) and rest[index].text == ",":
            index += 1
    if index >= len(rest):
        raise P4Error(name.position, f"the parameters of macro {name.text} are not closed; add )")
    return Macro(name.text, parameters, rest[index + 1 :])
