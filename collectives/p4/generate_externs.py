"""Writes what v1model's objects and functions do: registers, counters, random, hash, checksums, drop.

Objects are kept by the switch (``state``); the generated code holds their cells in names of its own.
"""

from __future__ import annotations

from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.generate_calls import CallGenerator
from collectives.p4.scope import Symbol

DROP_PORT = 511


class ExternGenerator(CallGenerator):
    """The part of the compiler for externs."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[Symbol, tuple[str, str]] = {}  # instance -> (Python name, path), in the control at hand

    # ---- objects

    def _call_extern(self, node: ast.Call) -> str:
        kind = node.target.base.type.declaration.name
        return str(getattr(self, f"_{kind}_{node.target.name}")(node))

    def _object(self, node: ast.Call) -> str:
        """Return the Python name of the object that a method is called on."""
        return self.objects[node.target.base.target][0]

    def _values(self, node: ast.Call) -> list[Any]:
        return [argument.value for argument in node.arguments]

    def _register_read(self, node: ast.Call) -> str:
        target, index = self._values(node)
        at = self.expression(index)
        if target is not None:
            self.store(target, self.place_of(target), f"{self._object(node)}[{at}]")
        return ""

    def _register_write(self, node: ast.Call) -> str:
        index, value = self._values(node)
        at = self.held(index) if self.acts(value) else self.expression(index)
        text = self.expression(value)
        self.writer.line(f"{self._object(node)}[{at}] = {text}")
        return ""

    def _counter_count(self, node: ast.Call) -> str:
        (index,) = self._values(node)
        self.writer.line(f"{self._object(node)}.count({self.expression(index)}, state.packet_bytes)")
        return ""

    def _direct_counter_count(self, node: ast.Call) -> str:
        return ""  # the table counts each hit

    # ---- functions

    def _call_native(self, node: ast.Call) -> str:
        return str(getattr(self, f"_native_{node.target.name}")(node))

    def _native_mark_to_drop(self, node: ast.Call) -> str:
        place = self.place(self._values(node)[0])
        self.writer.line(f"{place}.f_egress_spec = {DROP_PORT}")
        self.writer.line(f"{place}.f_mcast_grp = 0")
        return ""

    def _native_random(self, node: ast.Call) -> str:
        target, low, high = self._values(node)
        place = self.place_of(target) if target is not None else self.writer.name()
        text = f"state.random_between({self.expression(low)}, {self.expression(high)})"
        if target is None:
            self.writer.line(text)
        else:
            self.store(target, place, text)
        return ""

    def _native_hash(self, node: ast.Call) -> str:
        target, algorithm, base, data, limit = self._values(node)
        place = self.place_of(target) if target is not None else self.writer.name()
        first, most = self.expression(base), self.expression(limit)
        text = f"state.hash({self.expression(algorithm)}, {first}, {self.bit_fields(data)}, {most})"
        if target is not None:
            self.store(target, place, f"{text} & {hex(t.bits_of(target.type).mask)}")
        return ""

    def _checksum(self, node: ast.Call, payload: bool) -> tuple[str, Any, str]:
        """Return the condition, the checksum's place and the text that computes it."""
        condition, data, checksum, algorithm = self._values(node)
        when = self.kept(condition)
        kind = t.bits_of(checksum.type)
        extra = "state.payload" if payload else "b''"
        text = f"state.checksum({self.expression(algorithm)}, {self.bit_fields(data)}, {extra}) & {hex(kind.mask)}"
        return when, checksum, text

    def _native_update_checksum(self, node: ast.Call, payload: bool = False) -> str:
        when, checksum, text = self._checksum(node, payload)
        with self.writer.block(f"if {when}:"):
            self.store(checksum, self.place_of(checksum), text)
        return ""

    def _native_verify_checksum(self, node: ast.Call, payload: bool = False) -> str:
        when, checksum, text = self._checksum(node, payload)
        with self.writer.block(f"if {when} and {self.expression(checksum)} != {text}:"):
            self.writer.line("state.standard_metadata.f_checksum_error = 1")
        return ""

    def _native_update_checksum_with_payload(self, node: ast.Call) -> str:
        return self._native_update_checksum(node, True)

    def _native_verify_checksum_with_payload(self, node: ast.Call) -> str:
        return self._native_verify_checksum(node, True)

    def _native_truncate(self, node: ast.Call) -> str:
        self.writer.line(f"state.truncate_bytes = {self.expression(self._values(node)[0])}")
        return ""

    def _native_assert(self, node: ast.Call) -> str:
        with self.writer.block(f"if not {self.expression(self._values(node)[0])}:"):
            self.failure(f"{node.target.name} does not hold")
        return ""

    _native_assume = _native_assert

    def _native_log_msg(self, node: ast.Call) -> str:
        text, *data = self._values(node)
        values = self.expression(data[0]) if data else "()"
        self.writer.line(f"state.log_message({self.expression(text)}, {values})")
        return ""

    # ---- data of hashes

    def bit_fields(self, node: ast.Expression) -> str:
        """Return the text of a list of (number, bits): a value's fields in order."""
        parts: list[str] = []
        self._collect(self.kept(node), node.type, parts)
        return f"[{', '.join(parts)}]"

    def _collect(self, text: str, kind: t.Type, parts: list[str]) -> None:
        kind = t.bare(kind)
        if isinstance(kind, t.Composite):
            for name, of in kind.fields.items():
                self._collect(f"{text}.f_{name}", of, parts)
        elif isinstance(kind, t.Tuple):
            for index, of in enumerate(kind.items):
                self._collect(f"{text}[{index}]", of, parts)
        elif isinstance(kind, t.Varbit):
            parts.append(f"({text}[1], {text}[0])")
        else:
            width = t.width_of(kind)
            assert width is not None
            parts.append(f"(int({text}) & {hex((1 << width) - 1)}, {width})")
