"""Writes statements."""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.generate_externs import ExternGenerator
from collectives.p4.layouts import initial


class StatementGenerator(ExternGenerator):
    """The part of the compiler for statements."""

    def __init__(self) -> None:
        super().__init__()
        self._next: list[ast.Statement] = []  # what the innermost loop does at the end of each turn

    def statement(self, node: Any) -> None:
        """Write a statement."""
        if not isinstance(node, ast.Empty):
            self.at(node.position)
            getattr(self, f"_on_{type(node).__name__.lower()}")(node)

    def _on_block(self, node: ast.Block) -> None:
        for statement in node.statements:
            self.statement(statement)

    def _on_constant(self, node: ast.Constant) -> None:
        pass  # in the tree already

    def _on_variable(self, node: ast.Variable) -> None:
        kind = node.symbol.type
        self.use(kind)
        text = initial(kind) if node.value is None else self.fresh(node.value)
        name = self.names[node.symbol] = self.writer.name(f"v_{node.name}")
        self.writer.line(f"{name} = {text}")

    def _on_assignment(self, node: ast.Assignment) -> None:
        target = node.target
        if self.acts(node.value):  # effects of the value come after the place is settled
            place = self.place_of(target)
            self.store(target, place, self.expression(node.value))
        else:
            value = self.expression(node.value)
            self.store(target, self.place_of(target), value)

    def _on_callstatement(self, node: ast.CallStatement) -> None:
        self.expression(node.call)

    def _on_if(self, node: ast.If) -> None:
        condition = node.condition
        if condition.value is not None:  # known beforehand, as macros and consts make it
            chosen = node.then if condition.value else node.otherwise
            if chosen is not None:
                self.statement(chosen)
            return
        opening = "if"
        branch: ast.Statement | None = node
        while isinstance(branch, ast.If) and (opening == "if" or not self._is_special(branch)):
            self.at(branch.position)
            with self.writer.block(f"{opening} {self.expression(branch.condition)}:"):
                self.statement(branch.then)
            opening, branch = "elif", branch.otherwise
        if branch is not None:
            with self.writer.block("else:"):
                self.statement(branch)

    def _is_special(self, node: ast.If) -> bool:
        """Tell whether an if cannot be an elif: its condition needs lines before it, or is known."""
        return self.acts(node.condition) or node.condition.value is not None

    # ---- ways out

    def _on_return(self, node: ast.Return) -> None:
        if not self.frames:
            value = f"{self.fresh(node.value)}, " if node.value is not None else ""
            self.writer.line(f"return {value}{self.results(False)}")
            return
        frame = self.frames[-1]
        if frame.loops:
            self.writer.line(f"{frame.flag} = True")
        self.writer.line("break")

    def _on_exit(self, node: ast.Exit) -> None:
        self.leave()

    # ---- switch

    def _on_switch(self, node: ast.Switch) -> None:
        if isinstance(node.subject.type, t.ActionRun):
            self._switch_on_action(node)
            return
        subject = self.kept(node.subject)
        opening = "if"
        values: list[str] = []
        for case in node.cases:
            if isinstance(case.label, ast.Anything):
                if opening == "if":
                    self.statement(case.block)
                    return
                with self.writer.block("else:"):
                    self.statement(case.block)
                return
            values.append(self.expression(case.label))
            if case.block is not None:
                test = f"{subject} == {values[0]}" if len(values) == 1 else f"{subject} in ({', '.join(values)})"
                with self.writer.block(f"{opening} {test}:"):
                    self.statement(case.block)
                opening, values = "elif", []

    def _switch_on_action(self, node: ast.Switch) -> None:
        """Write ``switch (table.apply().action_run)``."""
        assert isinstance(node.subject, ast.Member)
        ran = self.action_run(node.subject.base)
        table: ast.Table = node.subject.type.table.node
        numbers = {reference.name: number for number, reference in enumerate(table.actions)}
        opening = "if"
        labels: list[int] = []
        for case in node.cases:
            if isinstance(case.label, ast.Anything):
                with self.writer.block("else:" if opening == "elif" else "if True:"):
                    self.statement(case.block)
                return
            labels.append(numbers[case.label.name])  # type: ignore[attr-defined]
            if case.block is not None:
                with self.writer.block(f"{opening} {ran} in ({', '.join(map(str, labels))},):"):
                    self.statement(case.block)
                opening, labels = "elif", []

    def action_run(self, node: ast.Expression) -> str:
        """Apply a table and return the text of the number of the action that ran; the tables' part knows how."""
        raise AssertionError(node)

    # ---- loops

    def _on_for(self, node: ast.For) -> None:
        frame = self.frames[-1]
        for statement in node.first:
            self.statement(statement)
        saved, self._next = self._next, node.next
        frame.loops += 1
        with self.writer.block("while True:"):
            condition = self.expression(node.condition)
            with self.writer.block(f"if not {condition}:"):
                self.writer.line("break")
            self.statement(node.body)
            for statement in node.next:
                self.statement(statement)
        frame.loops -= 1
        self._next = saved
        if frame.flag is not None and self.contains(node.body, ast.Return):
            with self.writer.block(f"if {frame.flag}:"):
                self.writer.line("break")

    def _on_break(self, node: ast.Break) -> None:
        self.writer.line("break")

    def _on_continue(self, node: ast.Continue) -> None:
        for statement in self._next:
            self.statement(statement)
        self.writer.line("continue")
