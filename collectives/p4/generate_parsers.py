"""Writes parsers: the states as branches of one loop, each look at the packet with its check of what is left.

The function returns how many bytes were extracted. A parser error is put into the standard metadata and ends parsing,
as on BMv2, where the packet goes on to the ingress.
"""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.generate_tables import TableGenerator
from collectives.p4.layouts import class_name, field_from, has_varbit

# More transitions than bytes in any packet: a loop that reads nothing.
_MAX_TRANSITIONS = 100_000


class ParserGenerator(TableGenerator):
    """The part of the compiler for parsers and deparsers."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = ""  # the Python name of the standard metadata, within a parser
        self._numbers: dict[str, int] = {}

    # ---- states

    def write_states(self, parser: ast.Parser) -> None:
        """Write the states of a parser whose parameters have their names."""
        assert parser.states is not None
        line = self.writer.line
        order = sorted(parser.states, key=lambda state: state.name != "start")
        self._numbers = {state.name: number for number, state in enumerate(order)}
        if len(order) == 1 and not _goes_to(order[0], "start"):
            self._state(order[0])
            return
        line("next_state = 0")
        with self.writer.block(f"for _ in range({_MAX_TRANSITIONS}):"):
            opening = "if"
            for state in order:
                with self.writer.block(f"{opening} next_state == {self._numbers[state.name]}:"):
                    self._state(state)
                opening = "elif"
        self.reject("ParserTimeout")

    def _state(self, state: ast.State) -> None:
        for statement in state.statements:
            self.statement(statement)
        self.at(state.next_position)
        if isinstance(state.next, ast.Select):
            self._select(state.next)
        else:
            self._go(str(state.next))

    def _go(self, name: str) -> None:
        self.writer.line("return offset" if name == "accept" else f"next_state = {self._numbers[name]}")

    def reject(self, error: str) -> None:
        """Write the end of parsing with an error."""
        self.writer.line(f"{self.metadata}.f_parser_error = {self.errors[error]}")
        self.writer.line("return offset")

    def _select(self, select: ast.Select) -> None:
        text = self.held if any(map(self.acts, select.keys)) else self.kept
        keys = [text(key) for key in select.keys]
        opening = "if"
        for sets, target, _ in select.cases:
            tests = [
                self._test(key, one) for key, one in zip(keys, sets, strict=False) if not isinstance(one, ast.Anything)
            ]
            if not tests:
                if opening == "if":
                    self._go(target)
                    return
                with self.writer.block("else:"):
                    self._go(target)
                return
            with self.writer.block(f"{opening} {' and '.join(tests)}:"):
                self._go(target)
            opening = "elif"
        with self.writer.block("else:" if opening == "elif" else "if True:"):
            self.reject("NoMatch")

    def _test(self, key: str, node: ast.Expression) -> str:
        """Return the text of whether a key lies in a set."""
        if isinstance(node, ast.Masked):
            mask = node.mask.value
            return f"{key} & {hex(mask)} == {hex(node.item.value & mask)}"
        if isinstance(node, ast.Ranged):
            return f"{self.expression(node.low)} <= {key} <= {self.expression(node.high)}"
        return f"{key} == {self.expression(node)}"

    # ---- the packet

    def _need(self, bytes_text: str) -> None:
        """Write the check that so many bytes are left."""
        with self.writer.block(f"if offset + {bytes_text} > size:"):
            self.reject("PacketTooShort")

    def _packet_in_extract(self, node: ast.Call) -> str:
        header, *bits = self._values(node)
        line = self.writer.line
        if header is None:
            kind: Any = next(iter(node.target.bindings.values()))
            self._need(str(kind.width // 8))
            line(f"offset += {kind.width // 8}")
            return ""
        kind = self.use(header.type)
        if has_varbit(kind):
            self._extract_varbit(header, kind, bits[0])
            return ""
        stack = self._next_place(header)
        place = self.expression(header)
        size = kind.width // 8
        self._need(str(size))
        line(f"{place}.unpack(data, offset)")
        line(f"offset += {size}")
        if stack:
            line(f"{stack}.next += 1")
        return ""

    def _next_place(self, header: ast.Expression) -> str:
        """Return the stack whose next header this is; an empty text where it is none."""
        if isinstance(header, ast.Member) and isinstance(header.base.type, t.Stack) and header.name == "next":
            return self.expression(header.base)
        return ""

    def _extract_varbit(self, header: ast.Expression, kind: t.Composite, bits: ast.Expression) -> None:
        line = self.writer.line
        length = self.writer.name("bits")
        line(f"{length} = {self.expression(bits)}")
        most = next(of.width for of in kind.fields.values() if isinstance(of, t.Varbit))
        with self.writer.block(f"if {length} > {most}:"):
            self.reject("HeaderTooShort")
        with self.writer.block(f"if ({length} + {kind.width - most}) % 8:"):
            self.reject("ParserInvalidArgument")
        stack = self._next_place(header)
        place = self.expression(header)
        size = self.writer.name("size")
        line(f"{size} = ({length} + {kind.width - most}) // 8")
        self._need(size)
        line(f"{place}.unpack(data, offset, {length})")
        line(f"offset += {size}")
        if stack:
            line(f"{stack}.next += 1")

    def stack_member(self, node: ast.Member) -> str:
        """Return the text of next or last, after the check that there is such a header."""
        stack = self.kept(node.base)
        if node.name == "next":
            with self.writer.block(f"if {stack}.next >= len({stack}.items):"):
                self.reject("StackOutOfBounds")
            return f"{stack}.items[{stack}.next]"
        with self.writer.block(f"if {stack}.next == 0:"):
            self.reject("StackOutOfBounds")
        return f"{stack}.items[{stack}.next - 1]"

    def _packet_in_lookahead(self, node: ast.Call) -> str:
        kind = node.type
        width = t.width_of(kind) or 0
        size = (width + 7) // 8
        self._need(str(size))
        name = self.writer.name("ahead")
        if isinstance(kind, t.Composite):
            self.use(kind)
            self.writer.line(f"{name} = {class_name(kind)}()")
            self.writer.line(f"{name}.unpack(data, offset)")
            return name
        number = f"int.from_bytes(data[offset:offset + {size}], 'big')"
        self.writer.line(f"{name} = {field_from(number, kind, width, 8 * size - width, 8 * size)}")
        return name

    def _packet_in_advance(self, node: ast.Call) -> str:
        (bits,) = self._values(node)
        amount = self.kept(bits)
        if bits.value is None:
            with self.writer.block(f"if {amount} % 8:"):
                self.reject("ParserInvalidArgument")
        self._need(f"{amount} // 8")
        self.writer.line(f"offset += {amount} // 8")
        return ""

    def _native_verify(self, node: ast.Call) -> str:
        condition, error = self._values(node)
        with self.writer.block(f"if not {self.expression(condition)}:"):
            self.writer.line(f"{self.metadata}.f_parser_error = {self.expression(error)}")
            self.writer.line("return offset")
        return ""

    def _packet_out_emit(self, node: ast.Call) -> str:
        (value,) = self._values(node)
        self.use(value.type)
        self.writer.line(f"{self.expression(node.target.base)}.append({self.expression(value)}.pack())")
        return ""


def _goes_to(state: ast.State, name: str) -> bool:
    """Tell whether a state has a transition to another."""
    if isinstance(state.next, ast.Select):
        return any(target == name for _, target, _ in state.next.cases)
    return state.next == name
