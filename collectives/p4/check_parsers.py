"""Checks parsers: their states, transitions and selects."""

from __future__ import annotations

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check_statements import StatementChecker
from collectives.p4.errors import counted
from collectives.p4.scope import Scope, suggestion


class ParserChecker(StatementChecker):
    """The part of the checker for parsers."""

    def parser_states(self, node: ast.Parser) -> None:
        """Check the states of a parser whose parameters and locals are in scope."""
        assert node.states is not None
        known: dict[str, ast.State] = {}
        for state in node.states:
            if state.name in ("accept", "reject"):
                self.fail(state, f"{state.name} is a state of every parser; give this one another name")
            if state.name in known:
                self.fail(state, f"state {state.name} is declared already, at {known[state.name].position}")
            known[state.name] = state
        if "start" not in known:
            self.fail(node, f"parser {node.name} has no state start; a parser begins there")
        self.where = "parser"
        for state in node.states:
            self._state(state, known)

    def _state(self, state: ast.State, known: dict[str, ast.State]) -> None:
        outer, self.scope = self.scope, Scope(self.scope)
        for statement in state.statements:
            self.statement(statement)
        if isinstance(state.next, ast.Select):
            self._select(state.next, known)
        elif state.next is not None:
            self._target(state.next, state.next_position, known)
        else:
            self.fail(state, f"state {state.name} has no transition; end it with transition accept;")
        self.scope = outer

    def _target(self, name: str, position: ast.Position, known: dict[str, ast.State]) -> None:
        if name == "reject" and self.architecture == "tna":
            return
        if name == "reject":
            self.fail(position, "BMv2 refuses a transition to reject; write verify(false, error...) and accept")
        if name != "accept" and name not in known:
            hint = suggestion(name, [*known, "accept"]) or f"there are {', '.join(known)} and accept"
            self.fail(position, f"there is no state {name}; {hint}")

    def _select(self, select: ast.Select, known: dict[str, ast.State]) -> None:
        kinds = []
        for key in select.keys:
            kind = self.expression(key)
            if not isinstance(t.bare(kind), t.Bits | t.Enum) and kind not in (t.BOOL, t.ERROR):
                self.fail(key, f"select chooses by bit<W>, int<W>, bool, an enum or error, and this is {kind}")
            kinds.append(kind)
        for sets, target, position in select.cases:
            if len(sets) == 1 and isinstance(sets[0], ast.ListExpression):
                self.fail(sets[0], "values of a case stand in parentheses, as in (a, b)")
            if len(sets) != len(kinds) and not (len(sets) == 1 and isinstance(sets[0], ast.Anything)):
                self.fail(
                    sets[0], f"select has {counted(len(kinds), 'key')}, and this case has {counted(len(sets), 'value')}"
                )
            for index, (one, kind) in enumerate(zip(sets, kinds, strict=False)):
                sets[index] = self.key_set(one, kind, "a case of select")
            self._target(target, position, known)

    def key_set(self, node: ast.Expression, kind: t.Type, what: str) -> ast.Expression:
        """Check a value, mask or range that a key is compared with; return it converted."""
        if isinstance(node, ast.Anything):
            node.type = kind
            return node
        if isinstance(node, ast.Masked | ast.Ranged):
            node.type = kind
            if not isinstance(t.bare(kind), t.Bits):
                self.fail(node, f"masks and ranges are for bit<W>, and this key is {kind}")
        if isinstance(node, ast.Masked):
            node.item = self._known(node.item, kind, what)
            node.mask = self._known(node.mask, kind, what)
            return node
        if isinstance(node, ast.Ranged):
            node.low = self._known(node.low, kind, what)
            node.high = self._known(node.high, kind, what)
            if node.low.value > node.high.value:
                self.fail(
                    node, f"the range {node.low.value} .. {node.high.value} is empty; write the lesser bound first"
                )
            return node
        return self._known(node, kind, what)

    def _known(self, node: ast.Expression, kind: t.Type, what: str) -> ast.Expression:
        node = self.convert(node, kind, what)
        if node.value is None:
            self.fail(node, f"{what} must be known before the program runs; write a number or a const")
        return node
