"""Writes the Python classes of a program's headers and structs: fields in slots, and how a header lies in a packet.

A class has ``copy``, ``assign``, ``same`` and ``reset``; a header also ``valid``, ``unpack`` (from bytes at an offset)
and ``pack``. Used by the compiler; imports the types and the writer.
"""

from __future__ import annotations

from collectives.p4 import types as t
from collectives.p4.writer import Writer

_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}


def class_name(kind: t.Composite) -> str:
    """Return the Python class of a header or struct."""
    return f"{'H' if kind.kind == 'header' else 'S'}_{kind.name}"


def initial(kind: t.Type) -> str:
    """Return an expression for the value that a variable of a type begins with."""
    kind = t.bare(kind)
    if isinstance(kind, t.Composite):
        return f"{class_name(kind)}()"
    if isinstance(kind, t.Stack):
        return f"HeaderStack({class_name(kind.item)}, {kind.size})"  # type: ignore[arg-type]
    if isinstance(kind, t.Varbit):
        return "(0, 0)"
    if isinstance(kind, t.Tuple):
        return f"({''.join(initial(item) + ', ' for item in kind.items)})"
    return "False" if kind is t.BOOL else "0"


def write_class(writer: Writer, kind: t.Composite) -> None:
    """Write the class of a header or struct."""
    simple = [f"f_{name}" for name, of in kind.fields.items() if not t.is_aggregate(of)]
    nested = [f"f_{name}" for name, of in kind.fields.items() if t.is_aggregate(of)]
    if kind.kind == "header":
        simple.insert(0, "valid")
    with writer.block(f"class {class_name(kind)}:"):
        writer.line(f"__slots__ = ({''.join(repr(slot) + ', ' for slot in simple + nested)})")
        with writer.block("def __init__(self):"):
            _write_initial(writer, kind)
            for name, of in kind.fields.items():
                if t.is_aggregate(of):
                    writer.line(f"self.f_{name} = {initial(of)}")
        with writer.block("def copy(self):"):
            writer.line(f"new = NEW({class_name(kind)})")
            for slot in simple:
                writer.line(f"new.{slot} = self.{slot}")
            for slot in nested:
                writer.line(f"new.{slot} = self.{slot}.copy()")
            writer.line("return new")
        with writer.block("def assign(self, other):"):
            for slot in simple:
                writer.line(f"self.{slot} = other.{slot}")
            for slot in nested:
                writer.line(f"self.{slot}.assign(other.{slot})")
        with writer.block("def reset(self):"):
            _write_initial(writer, kind)
            for slot in nested:
                writer.line(f"self.{slot}.reset()")
        _write_same(writer, kind, simple, nested)
        _write_of(writer, kind, simple, nested)
        if kind.kind == "header":
            _write_unpack(writer, kind)
            _write_pack(writer, kind)
        else:
            with writer.block("def pack(self):"):
                writer.line(f"return b''.join(({''.join(f'self.{slot}.pack(), ' for slot in nested)}))")


def _write_initial(writer: Writer, kind: t.Composite) -> None:
    """Set every field that is no aggregate to its first value."""
    by_value: dict[str, list[str]] = {"False": ["self.valid"]} if kind.kind == "header" else {}
    for name, of in kind.fields.items():
        if not t.is_aggregate(of):
            by_value.setdefault(initial(of), []).append(f"self.f_{name}")
    for value, slots in by_value.items():
        writer.line(f"{' = '.join(slots)} = {value}")


def _write_same(writer: Writer, kind: t.Composite, simple: list[str], nested: list[str]) -> None:
    with writer.block("def same(self, other):"):
        if kind.kind == "header":
            with writer.block("if not self.valid or not other.valid:"):
                writer.line("return self.valid == other.valid")
        parts = [f"self.{slot} == other.{slot}" for slot in simple if slot != "valid"]
        parts += [f"self.{slot}.same(other.{slot})" for slot in nested]
        writer.line(f"return {' and '.join(parts) or 'True'}")


def _write_of(writer: Writer, kind: t.Composite, simple: list[str], nested: list[str]) -> None:
    """Write the maker from values, as ``{a, b}`` needs it."""
    order = [f"f_{name}" for name in kind.fields]
    writer.line("@classmethod")
    with writer.block(f"def of(cls, {', '.join(order)}):"):
        writer.line(f"new = NEW({class_name(kind)})")
        for slot in simple:
            writer.line(f"new.{slot} = {'True' if slot == 'valid' else slot}")
        for slot in nested:
            writer.line(f"new.{slot} = {slot}")
        writer.line("return new")


# ---- in the packet ---------------------------------------------------------------------------------------------------


def groups(kind: t.Composite) -> list[list[tuple[str, t.Type, int]]]:
    """Cut the fields of a header without varbits into runs of whole bytes: lists of (slot, type, width)."""
    runs: list[list[tuple[str, t.Type, int]]] = []
    bits = 0
    for name, of in kind.fields.items():
        if bits % 8 == 0:
            runs.append([])
        width = t.width_of(of) or 0
        runs[-1].append((f"f_{name}", of, width))
        bits += width
    return runs


def field_from(number: str, of: t.Type, width: int, shift: int, total: int) -> str:
    """Return an expression for the field of ``width`` bits that lies ``shift`` above the end of a number."""
    text = f"({number} >> {shift})" if shift else number
    if shift + width < total:
        text = f"({text} & {hex((1 << width) - 1)})"
    kind = t.bare(of)
    if isinstance(kind, t.Enum):
        kind = kind.under or kind
    if kind is t.BOOL:
        return f"({text} == 1)"
    if isinstance(kind, t.Bits) and kind.signed:
        half = hex(1 << (width - 1))
        return f"(({text} ^ {half}) - {half})"
    return text


def field_to(value: str, of: t.Type, width: int) -> str:
    """Return an expression for a field as a number that is not negative."""
    kind = t.bare(of)
    if isinstance(kind, t.Enum):
        kind = kind.under or kind
    if isinstance(kind, t.Bits) and kind.signed:
        return f"({value} & {hex(kind.mask)})"
    return f"int({value})" if kind is t.BOOL else value


def _is_signed(of: t.Type) -> bool:
    kind = t.bare(of)
    if isinstance(kind, t.Enum):
        kind = kind.under or kind
    return isinstance(kind, t.Bits) and kind.signed


def _code(run: list[tuple[str, t.Type, int]]) -> str:
    """Return the struct code of a run of fields."""
    bits = sum(width for _, _, width in run)
    code = _CODES.get(bits)
    if code is None:
        return f"{bits // 8}s"
    return code.lower() if len(run) == 1 and _is_signed(run[0][1]) else code


def has_varbit(kind: t.Composite) -> bool:
    """Tell whether a header's size depends on the packet."""
    return any(isinstance(of, t.Varbit) for of in kind.fields.values())


def _write_unpack(writer: Writer, kind: t.Composite) -> None:
    if has_varbit(kind):
        _write_unpack_varbit(writer, kind)
        return
    runs = groups(kind)
    name = f"STRUCT_{kind.name}"
    with writer.block("def unpack(self, data, offset):"):
        targets, after = [], []
        for number, run in enumerate(runs):
            total = sum(width for _, _, width in run)
            slot, of, width = run[0]
            if len(run) == 1 and width in _CODES and t.bare(of) is not t.BOOL:
                targets.append(f"self.{slot}")
                continue
            targets.append(f"n{number}")
            if total not in _CODES:
                after.append(f"n{number} = int.from_bytes(n{number}, 'big')")
            shift = total
            for slot, of, width in run:
                shift -= width
                after.append(f"self.{slot} = {field_from(f'n{number}', of, width, shift, total)}")
        if targets:
            writer.line(f"({', '.join(targets)},) = {name}.unpack_from(data, offset)")
        for text in after:
            writer.line(text)
        writer.line("self.valid = True")


def _write_unpack_varbit(writer: Writer, kind: t.Composite) -> None:
    """Write unpack for a header with one varbit, whose bits are an argument."""
    total = f"({sum(t.width_of(of) or 0 for of in kind.fields.values() if not isinstance(of, t.Varbit))} + bits)"
    with writer.block("def unpack(self, data, offset, bits):"):
        writer.line(f"total = {total}")
        writer.line("number = int.from_bytes(data[offset:offset + total // 8], 'big')")
        writer.line("shift = total")
        for name, of in kind.fields.items():
            if isinstance(of, t.Varbit):
                writer.line("shift -= bits")
                writer.line(f"self.f_{name} = (bits, (number >> shift) & ((1 << bits) - 1))")
            else:
                width = t.width_of(of) or 0
                writer.line(f"shift -= {width}")
                writer.line(f"self.f_{name} = {field_from('(number >> shift)', of, width, 0, width + 1)}")
        writer.line("self.valid = True")


def _write_pack(writer: Writer, kind: t.Composite) -> None:
    with writer.block("def pack(self):"):
        with writer.block("if not self.valid:"):
            writer.line("return b''")
        if has_varbit(kind):
            writer.line("number = bits = 0")
            for name, of in kind.fields.items():
                if isinstance(of, t.Varbit):
                    writer.line(f"number = (number << self.f_{name}[0]) | self.f_{name}[1]")
                    writer.line(f"bits += self.f_{name}[0]")
                else:
                    width = t.width_of(of) or 0
                    writer.line(f"number = (number << {width}) | {field_to(f'self.f_{name}', of, width)}")
                    writer.line(f"bits += {width}")
            writer.line("return number.to_bytes(bits // 8, 'big')")
            return
        values = []
        for run in groups(kind):
            total = sum(width for _, _, width in run)
            if len(run) == 1 and total in _CODES:
                slot, of, _ = run[0]
                values.append(f"self.{slot}")
                continue
            shift = total
            parts = []
            for slot, of, width in run:
                shift -= width
                text = field_to(f"self.{slot}", of, width)
                parts.append(f"({text} << {shift})" if shift else text)
            number = f"({' | '.join(parts)})"
            values.append(number if total in _CODES else f"{number}.to_bytes({total // 8}, 'big')")
        writer.line(f"return STRUCT_{kind.name}.pack({', '.join(values)})")


def struct_format(kind: t.Composite) -> str:
    """Return the format of :class:`struct.Struct` for a header without varbits."""
    return ">" + "".join(_code(run) for run in groups(kind))
