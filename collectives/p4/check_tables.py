"""Checks tables: keys, actions, default action, the entries that the source gives."""

from __future__ import annotations

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check_parsers import ParserChecker
from collectives.p4.errors import counted
from collectives.p4.scope import Symbol, refusal, suggestion

# Ways to match that the tables here know -> the arguments that an entry may give.
_KINDS = {"exact", "lpm", "ternary", "range", "optional"}
_PROPERTIES = {"size", "counters"}
# Property -> the kinds of object that it attaches.
_ATTACHED = {"counters": ("direct_counter", "DirectCounter"), "registers": ("DirectRegister",)}


class TableChecker(ParserChecker):
    """The part of the checker for tables."""

    def table(self, node: ast.Table) -> t.Table:
        """Check a table in the scope of its control."""
        for element in node.key:
            self._key_element(element)
        if sum(element.kind == "lpm" for element in node.key) > 1:
            self.fail(node, f"table {node.name} has two lpm keys, and BMv2 has no order between them; make one ternary")
        if not node.actions:
            self.fail(node, f"table {node.name} names no actions; add actions = {{ ... }}")
        for reference in node.actions:
            self._reference(reference)
        if node.default is not None:
            self._chosen(node, node.default, "the default action")
        for entry in node.entries:
            self._entry(node, entry)
        for name, value in node.properties.items():
            self._property(node, name, value)
        return t.Table(node.name, node)

    def _key_element(self, element: ast.KeyElement) -> None:
        kind = self.expression(element.expression)
        where = element.expression
        if element.kind not in self.match_kinds or element.kind not in _KINDS:
            hint = suggestion(element.kind, list(_KINDS)) or f"there are {', '.join(sorted(_KINDS))}"
            self.fail(where, f"{element.kind} is no way to match a key; {hint}")
        if not isinstance(t.bare(kind), t.Bits | t.Enum) and kind not in (t.BOOL, t.ERROR):
            self.fail(where, f"a key is bit<W>, int<W>, bool, an enum or error, and this is {kind}; use its fields")
        if element.kind in ("lpm", "ternary", "range") and not isinstance(t.bare(kind), t.Bits):
            self.fail(where, f"{element.kind} is for bit<W>, and this key is {kind}; make it exact")
        if isinstance(t.bare(kind), t.Bits) and t.bare(kind).signed and element.kind != "exact":  # type: ignore[attr-defined]
            self.fail(where, f"{element.kind} is for bit<W>, and this key is {kind}; cast it")

    def _reference(self, reference: ast.ActionReference) -> None:
        """Check an action in the list of a table's actions."""
        symbol = self.find(reference.name, reference)
        if symbol.kind != "action":
            self.fail(reference, f"{reference.name} is a {symbol.kind}, and a table names actions")
        reference.target = symbol
        signature = symbol.type
        assert isinstance(signature, t.Callable)
        bound = [one for one in signature.parameters if one[1]]
        free = [one for one in signature.parameters if not one[1]]
        if signature.parameters[: len(bound)] != bound:
            self.fail(
                reference, f"parameters of {reference.name} without a direction come after the others; reorder them"
            )
        given = reference.arguments or []
        if len(given) != len(bound):
            names = ", ".join(name for name, _, _ in free)
            self.fail(
                reference,
                f"{reference.name} takes {counted(len(bound), 'argument')} in a list of actions, not {len(given)}"
                + (f"; the control plane gives {names}" if names else ""),
            )
        self._arguments(reference, t.Callable("action", reference.name, bound), {})

    def _chosen(self, table: ast.Table, reference: ast.ActionReference, what: str) -> None:
        """Check an action with its data: the default action, or that of an entry."""
        symbol = self.find(reference.name, reference)
        if symbol not in [one.target for one in table.actions]:
            names = ", ".join(one.name for one in table.actions)
            self.fail(
                reference, f"{what} is {reference.name}, which table {table.name} does not name; it names {names}"
            )
        reference.target = symbol
        signature = symbol.type
        assert isinstance(signature, t.Callable)
        free = [one for one in signature.parameters if not one[1]]
        bound = len(signature.parameters) - len(free)
        if bound and len(reference.arguments or []) == len(signature.parameters):
            reference.arguments = (reference.arguments or [])[bound:]  # written again, as p4c wants it
        self._arguments(reference, t.Callable("action", reference.name, free), {})
        for argument in reference.arguments or []:
            if argument.value is None or argument.value.value is None:
                self.fail(argument, f"{what} has data that are not known beforehand; write numbers or consts")

    def _entry(self, table: ast.Table, entry: ast.Entry) -> None:
        if len(entry.keys) != len(table.key):
            self.fail(
                entry,
                f"table {table.name} has {counted(len(table.key), 'key')}, and this entry gives {len(entry.keys)}",
            )
        for index, (one, element) in enumerate(zip(entry.keys, table.key, strict=False)):
            node = self.key_set(one, element.expression.type, "an entry of a table")
            entry.keys[index] = node
            allowed = {
                "exact": (),
                "optional": (ast.Anything,),
                "range": (ast.Anything, ast.Ranged),
                "lpm": (ast.Anything, ast.Masked),
                "ternary": (ast.Anything, ast.Masked),
            }[element.kind]
            if isinstance(node, ast.Anything | ast.Masked | ast.Ranged) and not isinstance(node, allowed):
                self.fail(one, f"this is no value for a key that is matched {element.kind}")
            if element.kind == "lpm" and isinstance(node, ast.Masked):
                self._prefix(node)
        self._chosen(table, entry.action, "the action of an entry")

    def _prefix(self, node: ast.Masked) -> None:
        kind = t.bare(node.type)
        assert isinstance(kind, t.Bits)
        zeros = kind.mask ^ node.mask.value
        if zeros & (zeros + 1):
            self.fail(node.mask, f"{node.mask.value:#x} is no prefix; an lpm mask has its ones first, then zeros")

    def _property(self, table: ast.Table, name: str, value: ast.Expression) -> None:
        if name == "size":
            if self.constant(value, "the size of a table") < 1:
                self.fail(value, "the size of a table is at least 1")
        elif name == "counters" or (name == "registers" and self.architecture == "tna"):
            kind = self.expression(value)
            fits = isinstance(kind, t.Extern) and kind.declaration.name in _ATTACHED[name]
            if not fits or not isinstance(value, ast.Name):
                wanted = _ATTACHED[name][-1 if self.architecture == "tna" else 0]
                self.fail(value, f"{name} names a {wanted} of the control")
            self._attach(table, value.target)
        elif name == "implementation":
            self.fail(value, refusal("action_profile") or "")
        else:
            hint = suggestion(name, list(_PROPERTIES)) or f"there are {', '.join(sorted(_PROPERTIES))}"
            self.fail(value, f"{name} is no property of a table here; {hint}")

    def _attach(self, table: ast.Table, counter: Symbol) -> None:
        """Note which table a direct counter counts for."""
        if counter.value is not None:
            self.fail(counter.position, f"{counter.name} counts for table {counter.value.name} already; make another")
        counter.value = table
