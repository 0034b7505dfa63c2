"""Checks statements, loops among them: only where the reference compiler treats them right."""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check_calls import CallChecker
from collectives.p4.scope import Scope, Symbol


class StatementChecker(CallChecker):
    """The part of the checker for statements."""

    def block(self, node: ast.Block) -> None:
        """Check statements in a scope of their own."""
        outer, self.scope = self.scope, Scope(self.scope)
        for statement in node.statements:
            self.statement(statement)
        self.scope = outer

    def statement(self, node: Any) -> None:
        """Check one statement."""
        getattr(self, f"_on_{type(node).__name__.lower()}")(node)

    _on_block = block

    def _branch(self, node: ast.Statement) -> None:
        outer, self.scope = self.scope, Scope(self.scope)
        self.statement(node)
        self.scope = outer

    def _on_empty(self, node: ast.Empty) -> None:
        pass

    def _on_variable(self, node: ast.Variable) -> None:
        kind = self.resolve(node.type)
        self._storable(node, kind)
        if node.value is not None:
            node.value = self.convert(node.value, kind, f"variable {node.name}")
        self.scope.declare(Symbol("variable", node.name, kind, node.position, node))

    def _storable(self, node: ast.Node, kind: t.Type) -> None:
        if kind is t.INTEGER:
            self.fail(node, "a variable needs a width, as in bit<32>; int without one is for constants")
        if isinstance(kind, t.Callable | t.Extern | t.Basic) and kind not in (t.BOOL, t.ERROR):
            self.fail(node, f"a variable cannot hold {kind}")

    def _on_constant(self, node: ast.Constant) -> None:
        kind = self.resolve(node.type)
        node.value = self.convert(node.value, kind, f"const {node.name}")
        if node.value.value is None:
            self.fail(node.value, f"const {node.name} must be known before the program runs, and be no struct or list")
        self.scope.declare(Symbol("constant", node.name, kind, node.position, node, node.value.value))

    def _on_instance(self, node: ast.Instance) -> None:
        self.fail(node, "objects are made beside the actions and tables of a control, not among statements; move it up")

    def _on_assignment(self, node: ast.Assignment) -> None:
        kind = self.expression(node.target)
        self.require_place(node.target, "an assignment")
        if node.operator:  # a += b is a = a + b
            node.value = ast.Binary(node.position, node.operator, node.target, node.value)
            node.operator = ""
        if isinstance(kind, t.Stack):
            self.expression(node.value)
        node.value = self.convert(node.value, kind, "the assignment")

    def _on_callstatement(self, node: ast.CallStatement) -> None:
        if not isinstance(node.call, ast.Call):
            # t.apply().hit; on its own does nothing, and neither does x;
            self.fail(node, "this statement does nothing; assign it, or call something")
        self.expression(node.call)

    def _on_if(self, node: ast.If) -> None:
        node.condition = self.convert(node.condition, t.BOOL, "the condition of if")
        self._branch(node.then)
        if node.otherwise is not None:
            self._branch(node.otherwise)

    def _on_return(self, node: ast.Return) -> None:
        if self.where == "parser":
            self.fail(node, "a parser has no return; write a transition")
        if self.where == "function" and self.returns is not t.VOID:
            if node.value is None:
                self.fail(node, f"this function returns {self.returns}; give return a value")
            node.value = self.convert(node.value, self.returns, "return")
        elif node.value is not None:
            self.fail(node, f"nothing takes a value here, in {self.here}; write return; alone")

    def _on_exit(self, node: ast.Exit) -> None:
        if self.where not in ("control", "action"):
            self.fail(node, f"exit is for controls and actions, and this is {self.here}")

    # ---- switch

    def _on_switch(self, node: ast.Switch) -> None:
        if self.where == "parser":
            self.fail(node, "a parser has no switch; write a select")
        kind = self.expression(node.subject)
        if kind is t.INTEGER or (not isinstance(t.bare(kind), t.Bits | t.Enum | t.ActionRun) and kind is not t.ERROR):
            self.fail(node.subject, f"switch takes table.apply().action_run, bit<W>, an enum or error, not {kind}")
        seen: dict[Any, ast.Node] = {}
        for index, case in enumerate(node.cases):
            label = self._label(case, kind)
            if label in seen:
                self.fail(case, f"this label stands at {seen[label].position} already; remove one")
            if "default" in seen:
                self.fail(case, "nothing comes after default; put it last")
            seen[label] = case
            if case.block is not None:
                self.block(case.block)
            elif index == len(node.cases) - 1:
                self.fail(case, "the last label needs a block")

    def _label(self, case: ast.SwitchCase, kind: t.Type) -> Any:
        """Check a label of a switch and return what tells it from others."""
        label = case.label
        if isinstance(label, ast.Anything):
            return "default"
        if isinstance(kind, t.ActionRun):
            names = [reference.name for reference in kind.table.node.actions]
            if not isinstance(label, ast.Name) or label.name not in names:
                self.fail(label, f"a label here is one of the table's actions: {', '.join(names)}")
            label.target = self.find(label.name, label)
            return label.name
        case.label = label = self.convert(label, kind, "a label of switch")
        if label.value is None:
            self.fail(label, "a label of switch must be known before the program runs")
        return ("value", label.value)

    # ---- loops

    def _on_for(self, node: ast.For) -> None:
        if self.where != "action":
            self.fail(
                node,
                "p4c compiles a loop outside an action without a warning and runs its body once; "
                "move the loop into an action, or unroll it with a macro",
            )
        outer, self.scope = self.scope, Scope(self.scope)
        for statement in node.first:
            self.statement(statement)
        node.condition = self.convert(node.condition, t.BOOL, "the condition of for")
        for statement in node.next:
            self.statement(statement)
        self.loops += 1
        self._branch(node.body)
        self.loops -= 1
        self.scope = outer

    def _on_forin(self, node: ast.ForIn) -> None:
        self.fail(node, "p4c refuses for (... in ...); write for (bit<32> i = 0; i < n; i = i + 1) in an action")

    def _on_break(self, node: ast.Break | ast.Continue) -> None:
        if not self.loops:
            self.fail(node, "this is outside any loop")

    _on_continue = _on_break
