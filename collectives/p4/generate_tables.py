"""Writes the application of tables, and describes them for the control plane."""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.errors import P4Error
from collectives.p4.generate_base import ActionLayout, EntryLayout, KeyLayout, TableLayout
from collectives.p4.generate_statements import StatementGenerator
from collectives.p4.scope import Symbol

_DEFAULT_SIZE = 1024


class TableGenerator(StatementGenerator):
    """The part of the compiler for tables."""

    def __init__(self) -> None:
        super().__init__()
        self.table_paths: dict[Symbol, str] = {}  # table -> path, in the control at hand
        self.lookups: dict[str, str] = {}  # path of a table -> Python name of its lookup
        self.applied_at: dict[str, Any] = {}  # path of a table -> where it is applied

    def _call_table(self, node: ast.Call) -> str:
        return self.apply(node)[0]

    def action_run(self, node: ast.Expression) -> str:
        """Apply a table and return the text of the number of the action that ran."""
        assert isinstance(node, ast.Call)
        return self.apply(node)[1]

    def apply(self, node: ast.Call) -> tuple[str, str]:
        """Write one application; return the names of whether it hit, and of the number of the action that ran."""
        table: ast.Table = node.target.symbol.node
        path = self.table_paths[node.target.symbol]
        if path in self.applied_at and self.applied_at[path] is not node:
            raise P4Error(node.position, f"table {path} is applied at two places; BMv2 applies a table at one only")
        self.applied_at[path] = node
        expressions = [one.expression for one in table.key]
        text = self.held if any(map(self.acts, expressions)) else self.expression
        keys = [text(one) for one in expressions]
        hit, ran, data = self.writer.name("hit"), self.writer.name("ran"), self.writer.name("data")
        key = "".join(f"{one}, " for one in keys)
        self.writer.line(f"{hit}, {ran}, {data} = {self.lookups[path]}(({key}))")
        if any(reference.target.node.body.statements for reference in table.actions):
            self._dispatch(table, ran, data)
        return hit, ran

    def _dispatch(self, table: ast.Table, ran: str, data: str) -> None:
        """Write the actions of a table, each in place behind its number."""
        opening = "if"
        for number, reference in enumerate(table.actions):
            action: ast.Action = reference.target.node
            if not action.body.statements:
                continue
            with self.writer.block(f"{opening} {ran} == {number}:"):
                self._run(action, reference, data)
            opening = "elif"

    def _run(self, action: ast.Action, reference: ast.ActionReference, data: str) -> None:
        bound: list[Any] = [argument.value for argument in reference.arguments or []]
        free = [parameter for parameter in action.parameters if not parameter.direction]
        names = [self.writer.name(f"d_{parameter.name}") for parameter in free]
        if names:
            self.writer.line(f"{''.join(name + ', ' for name in names)}= {data}")
        self.inline(action, [*bound, *names])

    # ---- description

    def describe(self, table: ast.Table, path: str, action_paths: dict[Symbol, str]) -> TableLayout:
        """Describe a table for the control plane."""
        keys = [KeyLayout(one.shown or spelt(one.expression), one.expression.type, one.kind) for one in table.key]
        actions = []
        for reference in table.actions:
            free = [(one.name, one.symbol.type) for one in reference.target.node.parameters if not one.direction]
            actions.append(ActionLayout(action_paths.get(reference.target, reference.name), free))
        size = table.properties.get("size")
        number = {reference.target: number for number, reference in enumerate(table.actions)}
        default = table.default
        if default is None:
            nothing = [n for target, n in number.items() if target.name == "NoAction" and target.is_global]
            if not nothing:  # it may run without being named
                actions.append(ActionLayout("NoAction", []))
            chosen: tuple[int, tuple[Any, ...]] = (nothing[0] if nothing else len(actions) - 1, ())
        else:
            chosen = (number[default.target], self._data(default))
        entries = [
            EntryLayout(
                [matcher(key, one.kind, one.expression.type) for key, one in zip(entry.keys, table.key, strict=False)],
                number[entry.action.target],
                self._data(entry.action),
            )
            for entry in table.entries
        ]
        return TableLayout(
            keys,
            actions,
            self.constant(size) if size is not None else _DEFAULT_SIZE,
            chosen,
            table.default_is_constant,
            entries,
            table.entries_are_constant,
        )

    def _data(self, reference: ast.ActionReference) -> tuple[Any, ...]:
        return tuple(argument.value.value for argument in reference.arguments or [] if argument.value is not None)


def matcher(node: ast.Expression, match: str, kind: t.Type) -> Any:
    """Return an element of an entry as the control plane would give it (see tables.py)."""
    inner = t.bare(kind)
    if isinstance(node, ast.Anything):
        return None
    if isinstance(node, ast.Ranged):
        return (node.low.value, node.high.value)
    if isinstance(node, ast.Masked):
        return (node.item.value, node.mask.value.bit_count() if match == "lpm" else node.mask.value)
    if match == "lpm":
        assert isinstance(inner, t.Bits)
        return (node.value, inner.width)
    if match == "ternary":
        assert isinstance(inner, t.Bits)
        return (node.value, inner.mask)
    return (node.value, node.value) if match == "range" else node.value


def spelt(node: ast.Expression) -> str:
    """Return a key as the control plane names it: as it was written."""
    if isinstance(node, ast.Name):
        return node.name
    if isinstance(node, ast.Member):
        return f"{spelt(node.base)}.{node.name}"
    if isinstance(node, ast.Index):
        return f"{spelt(node.base)}[{spelt(node.index)}]"
    if isinstance(node, ast.Slice):
        return f"{spelt(node.base)}[{node.high.value}:{node.low.value}]"
    if isinstance(node, ast.Call):
        return f"{spelt(node.function)}()"
    if isinstance(node, ast.Cast):
        return spelt(node.operand)
    if isinstance(node, ast.Binary):
        return f"{spelt(node.left)} {node.operator} {spelt(node.right)}"
    if isinstance(node, ast.Unary):
        return f"{node.operator}{spelt(node.operand)}"
    return str(node.value) if node.value is not None else "key"
