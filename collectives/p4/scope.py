"""Names and what they stand for, scope within scope. Used by the checker and the compiler."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator
from typing import Any

from collectives.p4 import ast
from collectives.p4.errors import P4Error, Position
from collectives.p4.types import Type

# Names of v1model that the interpreter does not run, and what to do instead.
REFUSED = {
    "clone": "send a copy with a multicast group instead",
    "clone3": "send a copy with a multicast group instead",
    "clone_preserving_field_list": "send a copy with a multicast group instead",
    "resubmit": "do the work in one pass",
    "resubmit_preserving_field_list": "do the work in one pass",
    "recirculate": "do the work in one pass",
    "recirculate_preserving_field_list": "do the work in one pass",
    "digest": "let the control plane read a register or counter",
    "action_profile": "name the actions in the table",
    "action_selector": "name the actions in the table",
    "meter": "count with a counter or register",
    "direct_meter": "count with a counter or register",
    "value_set": "write the values as cases of the select",
    "Checksum16": "use update_checksum in the checksum control",
}
# What may not have the name of a parameter around it.
_MUST_NOT_HIDE = {"variable", "constant", "instance", "table", "action"}


def refusal(name: str) -> str | None:
    """Say that a name of v1model is outside the subset; None for any other name."""
    return f"{name} is outside the subset that runs here; {REFUSED[name]}" if name in REFUSED else None


@dataclasses.dataclass(eq=False)
class Symbol:
    """What a name stands for.

    ``kind`` is type, constant, variable, parameter, constructor (a parameter of one), instance, action, function, table
    or state. ``value`` is a constant's. ``direction`` is a parameter's. ``node`` is the declaration. ``others`` are
    functions of the same name that take another number of arguments.
    """

    kind: str
    name: str
    type: Type
    position: Position
    node: Any = None
    value: Any = None
    direction: str = ""
    is_global: bool = False
    others: list[Symbol] = dataclasses.field(default_factory=list)

    def variants(self) -> Iterator[Symbol]:
        """Yield this symbol and the others of its name."""
        yield self
        yield from self.others


class Scope:
    """The names of one block, and the scope around it."""

    def __init__(self, outer: Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, Symbol] = {}

    def declare(self, symbol: Symbol) -> Symbol:
        """Add a name.

        Raises
        ------
        P4Error
            If this scope has it already.
        """
        earlier = self.names.get(symbol.name)
        if earlier is not None:
            hint = "give one another name"
            if earlier.position.file.startswith("<"):
                hint = f"that name is the architecture's; take another, such as My{symbol.name}"
            raise P4Error(symbol.position, f"{symbol.name} is declared already, at {earlier.position}; {hint}")
        hidden = self.outer.find(symbol.name) if self.outer else None
        if hidden is not None and hidden.kind == "parameter" and symbol.kind in _MUST_NOT_HIDE:
            raise P4Error(symbol.position, f"{symbol.name} hides a parameter, which p4c refuses; rename one")
        self.names[symbol.name] = symbol
        if isinstance(symbol.node, ast.Declaration):
            symbol.node.symbol = symbol
        return symbol

    def find(self, name: str) -> Symbol | None:
        """Return what a name stands for, here or further out; None where it is not declared."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def known(self) -> set[str]:
        """Return every name that can be seen from here."""
        names: set[str] = set()
        scope: Scope | None = self
        while scope is not None:
            names |= scope.names.keys()
            scope = scope.outer
        return names


def suggestion(name: str, known: set[str] | list[str]) -> str:
    """Return ``did you mean x?`` where a known name is close to this one, else an empty text."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else ""
