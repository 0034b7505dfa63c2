"""Checks names, members, indices, slices and lists: everything of an expression that is neither operator nor call."""

from __future__ import annotations

from collectives.p4 import ast, fold
from collectives.p4 import types as t
from collectives.p4.check_operators import OperatorChecker
from collectives.p4.scope import Symbol, suggestion


class ExpressionChecker(OperatorChecker):
    """The part of the checker for what expressions are made of."""

    def _number(self, node: ast.Number) -> None:
        node.type = t.INTEGER
        node.value = node.number
        if node.width is not None:
            if node.width > t.MAX_WIDTH or (node.signed and node.width < 2):
                self.fail(
                    node, f"a number of width {node.width}; widths lie between {1 + node.signed} and {t.MAX_WIDTH}"
                )
            node.type = t.bits(node.width, node.signed)

    def _text(self, node: ast.Text) -> None:
        node.type, node.value = t.STRING, node.text

    def _truth(self, node: ast.Truth) -> None:
        node.type, node.value = t.BOOL, node.truth

    def _name(self, node: ast.Name) -> None:
        symbol = self.find(node.name, node, node.is_global)
        if symbol.kind == "type":
            self.fail(node, f"{node.name} is a type, and a value is needed here")
        node.target = symbol
        node.type = symbol.type
        node.value = symbol.value

    def _typemember(self, node: ast.TypeMember) -> None:
        kind = self.resolve(node.of)
        if kind is t.ERROR:
            members, node.type = self.errors, t.ERROR
        elif isinstance(kind, t.Enum):
            members, node.type = kind.members, kind
        else:
            self.fail(node, f"{kind} has no members to name; only an enum and error have")
        if node.name not in members:
            hint = suggestion(node.name, list(members)) or f"its members are {', '.join(members)}"
            self.fail(node, f"{kind} has no member {node.name}; {hint}")
        node.value = members[node.name]

    def _member(self, node: ast.Member) -> None:
        kind = self.expression(node.base)
        name = node.name
        if isinstance(kind, t.Composite):
            if name not in kind.fields:
                hint = suggestion(name, list(kind.fields)) or f"its fields are {', '.join(kind.fields)}"
                self.fail(node, f"{kind.kind} {kind} has no field {name}; {hint}")
            node.type = kind.fields[name]
        elif isinstance(kind, t.Stack):
            self._stack_member(node, kind)
        elif isinstance(kind, t.TableResult):
            if name not in ("hit", "miss", "action_run"):
                self.fail(node, f"apply() of a table gives hit, miss and action_run, not {name}")
            node.type = t.ActionRun(kind.table) if name == "action_run" else t.BOOL
        else:
            self.fail(node, f"{kind} has no member {name}")

    def _stack_member(self, node: ast.Member, kind: t.Stack) -> None:
        """Check next, last, lastIndex and size of a header stack."""
        if node.name == "size":
            node.type, node.value = t.bits(32), kind.size
        elif node.name in ("next", "last", "lastIndex"):
            if self.where != "parser":
                self.fail(node, f"{node.name} of a header stack is for parsers; write an index, as in stack[0]")
            if node.name == "lastIndex":
                self.fail(node, "BMv2 refuses lastIndex; count in a variable of the parser's metadata")
            node.type = kind.item
        else:
            self.fail(node, f"a header stack has next, last and size, not {node.name}")

    def _index(self, node: ast.Index) -> None:
        kind = self.expression(node.base)
        index = self.expression(node.index)
        if isinstance(kind, t.Stack):
            if index is not t.INTEGER and (not isinstance(index, t.Bits) or index.signed):
                self.fail(node.index, f"an index is a bit<W>, and this is {index}; cast it")
            if node.index.value is not None and not 0 <= node.index.value < kind.size:
                self.fail(
                    node.index, f"the stack has {kind.size} headers, 0 to {kind.size - 1}; {node.index.value} is none"
                )
            node.type = kind.item
        elif isinstance(kind, t.Tuple):
            place = self.constant(node.index, "the index of a tuple")
            if not 0 <= place < len(kind.items):
                self.fail(node.index, f"the tuple has {len(kind.items)} values; {place} is none")
            node.type = kind.items[place]
        else:
            self.fail(node, f"{kind} has no elements; only header stacks and tuples have (write [h:l] for bits)")

    def _slice(self, node: ast.Slice) -> None:
        kind = t.bare(self.expression(node.base))
        if not isinstance(kind, t.Bits):
            self.fail(node, f"bits are cut out of bit<W> or int<W>, and this is {node.base.type}")
        high = self.constant(node.high, "the upper bound of a slice")
        low = self.constant(node.low, "the lower bound of a slice")
        if not 0 <= low <= high < kind.width:
            self.fail(node, f"[{high}:{low}] is outside {kind}; write [h:l] with {kind.width - 1} >= h >= l >= 0")
        node.type = t.bits(high - low + 1)
        if node.base.value is not None:
            node.value = fold.slice_of(node.base.value, high, low)

    def _listexpression(self, node: ast.ListExpression) -> None:
        node.type = t.tuple_of(tuple(self.expression(item) for item in node.items))

    def _structexpression(self, node: ast.StructExpression) -> None:
        self.fail(node, "the type of this struct is not known here; assign it to a variable first")

    def _masked(self, node: ast.Masked) -> None:
        self.fail(node, "&&& belongs into a select or an entry of a table")

    _ranged = _masked

    def _anything(self, node: ast.Anything) -> None:
        self.fail(node, "this belongs into a select, a switch or an entry of a table")

    def _construct(self, node: ast.Construct) -> None:
        self.fail(node, f"{node.of.name}(...) makes an object, which is only an argument of a package; give it a name")

    # ---- what may be assigned to

    def place_root(self, node: ast.Expression) -> Symbol | None:
        """Return the variable that a place is part of; None where the expression is no place."""
        while isinstance(node, ast.Member | ast.Index | ast.Slice):
            node = node.base
        if isinstance(node, ast.Name) and isinstance(node.target, Symbol):
            return node.target
        return None

    def require_place(self, node: ast.Expression, what: str) -> None:
        """Fail unless an expression, checked already, may be assigned to."""
        root = self.place_root(node)
        if root is None or root.kind not in ("variable", "parameter"):
            thing = f"{root.name} is a {root.kind}" if root else "this is only a value"
            self.fail(node, f"{what} needs a variable or a field, and {thing}")
        if root.kind == "parameter" and root.direction not in ("out", "inout"):
            way = f"an {root.direction} parameter" if root.direction else "a parameter without direction"
            self.fail(node, f"{root.name} is {way} and cannot be changed; make it inout, or copy it to a variable")
        inner = node
        while isinstance(inner, ast.Slice | ast.Index | ast.Member):
            if isinstance(inner, ast.Index) and isinstance(inner.base.type, t.Tuple):
                self.fail(node, "a tuple cannot be changed; make a new one")
            if isinstance(inner, ast.Slice) and inner is not node:
                self.fail(node, "a slice of a slice cannot be assigned; write the bits of the whole")
            inner = inner.base
