"""Every operator, over widths from 1 to 2048 bits, against plain integers: what a packet brings, and what is folded."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import p4
from tests.p4.harness import program, source, switch, through


def wrap(number: int, width: int, signed: bool) -> int:
    """Return a number modulo 2**width, in the range of bit<width> or int<width>."""
    number %= 1 << width
    return number - (1 << width) if signed and number >> (width - 1) else number


def saturate(number: int, width: int, signed: bool) -> int:
    """Return the number of the range that is nearest."""
    least = -(1 << (width - 1)) if signed else 0
    return max(least, min(number, least + (1 << width) - 1))


# Operator -> what it gives for a, b and a small s, before it is cut to the width.
SAME_WIDTH: dict[str, Callable[[int, int, int], int]] = {
    "a + b": lambda a, b, s: a + b,
    "a - b": lambda a, b, s: a - b,
    "a * b": lambda a, b, s: a * b,
    "a & b": lambda a, b, s: a & b,
    "a | b": lambda a, b, s: a | b,
    "a ^ b": lambda a, b, s: a ^ b,
    "~a": lambda a, b, s: -1 - a,
    "-a": lambda a, b, s: -a,
    "+a": lambda a, b, s: a,
    "a << s": lambda a, b, s: a * 2**s,
    "a >> s": lambda a, b, s: a // 2**s,
    "a << 3": lambda a, b, s: a * 8,
    "a >> 3": lambda a, b, s: a // 8,
    "a > b ? a : b": lambda a, b, s: max(a, b),
    "a + b * a - b": lambda a, b, s: a + b * a - b,
    "(a + b) * (a - b)": lambda a, b, s: (a + b) * (a - b),
}
SATURATING: dict[str, Callable[[int, int], int]] = {"a |+| b": lambda a, b: a + b, "a |-| b": lambda a, b: a - b}
COMPARING: dict[str, Callable[[int, int], bool]] = {
    "a == b": lambda a, b: a == b,
    "a != b": lambda a, b: a != b,
    "a < b": lambda a, b: a < b,
    "a <= b": lambda a, b: a <= b,
    "a > b": lambda a, b: a > b,
    "a >= b": lambda a, b: a >= b,
    "a < b && !(a == b)": lambda a, b: a < b,
    "a < b || a > b": lambda a, b: a != b,
}


def expected(width: int, signed: bool, a: int, b: int, s: int) -> list[tuple[str, int, int]]:
    """Return (expression, its value as bits, its width) for all of them."""
    out = []
    for text, function in SAME_WIDTH.items():
        out.append((text, wrap(function(a, b, s), width, False), width))
    for text, saturating in SATURATING.items():
        out.append((text, wrap(saturate(saturating(a, b), width, signed), width, False), width))
    for text, comparing in COMPARING.items():
        out.append((text, int(comparing(a, b)), 1))
    return out


def renamed(text: str) -> str:
    """Return an expression over the fields of the header."""
    return "".join(f"hdr.h.{letter}" if letter in "abs" else letter for letter in text)


def padded(fields: list[tuple[str, str, int]]) -> str:
    """Return the fields of a header, filled up to whole bytes."""
    spare = -sum(width for _, _, width in fields) % 8
    lines = [f"{kind} {name};" for name, kind, _ in fields]
    return " ".join([*lines, f"bit<{spare}> spare;"] if spare else lines)


@functools.cache
def operators(width: int, signed: bool) -> p4.V1Switch:
    """Return a switch that computes every expression of the tables."""
    kind = f"{'int' if signed else 'bit'}<{width}>"
    results = expected(width, signed, 0, 0, 0)
    fields = [("a", kind, width), ("b", kind, width), ("s", "bit<8>", 8)]
    fields += [(f"r{n}", "bit<1>" if text in COMPARING else kind, bits) for n, (text, _, bits) in enumerate(results)]
    lines = []
    for n, (text, _, _) in enumerate(results):
        value = renamed(text)
        lines.append(f"hdr.h.r{n} = (bit<1>)({value});" if text in COMPARING else f"hdr.h.r{n} = {value};")
    with tempfile.TemporaryDirectory() as folder:
        return switch(pathlib.Path(folder), fields=padded(fields), apply="\n".join(lines))


def numbers(width: int, signed: bool) -> st.SearchStrategy[int]:
    """Draw numbers of a type, its ends more often than others."""
    least = -(1 << (width - 1)) if signed else 0
    most = least + (1 << width) - 1
    return st.one_of(st.integers(least, most), st.sampled_from([least, most, 0, min(1, most)]))


WIDTHS = st.one_of(st.sampled_from([2, 3, 7, 8, 9, 16, 31, 32, 33, 48, 64, 65, 128, 1024, 2048]), st.integers(2, 2048))


@pytest.mark.parametrize("signed", [False, True])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_operators_of_what_a_packet_brings(signed: bool, data: st.DataObject) -> None:
    width = data.draw(WIDTHS, "width")
    one = operators(width, signed)
    for _ in range(8):
        a, b = data.draw(numbers(width, signed), "a"), data.draw(numbers(width, signed), "b")
        s = data.draw(st.integers(0, 255), "s")
        results = expected(width, signed, a, b, s)
        total = 2 * width + 8 + sum(bits for _, _, bits in results)
        size = (total + 7) // 8
        packet = 0
        for value, bits in [(a, width), (b, width), (s, 8)]:
            packet = packet << bits | wrap(value, bits, False)
        packet <<= 8 * size - 2 * width - 8
        out = int.from_bytes(through(one, packet.to_bytes(size, "big")), "big")
        shift = 8 * size - 2 * width - 8
        for text, value, bits in results:
            shift -= bits
            assert (out >> shift) & ((1 << bits) - 1) == value, (text, width, signed, a, b, s)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_width_of_one_bit(data: st.DataObject) -> None:
    one = operators(1, False)
    a, b = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    results = expected(1, False, a, b, 0)
    size = (2 + 8 + len(results) + 7) // 8
    out = int.from_bytes(through(one, (a << (8 * size - 1) | b << (8 * size - 2)).to_bytes(size, "big")), "big")
    got = [(out >> (8 * size - 11 - n)) & 1 for n in range(len(results))]
    assert got == [value for _, value, _ in results]


@pytest.mark.parametrize("signed", [False, True])
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_operators_of_constants_are_folded_alike(signed: bool, data: st.DataObject) -> None:
    width = data.draw(st.integers(2, 200), "width")
    a, b = data.draw(numbers(width, signed), "a"), data.draw(numbers(width, signed), "b")
    s = data.draw(st.integers(0, 255), "s")
    results = expected(width, signed, a, b, s)
    kind = f"{'int' if signed else 'bit'}<{width}>"
    fields, lines = [], [f"const {kind} a = {a}; const {kind} b = {b}; const bit<8> s = {s};"]
    for n, (text, _, bits) in enumerate(results):
        fields.append((f"r{n}", "bit<1>" if text in COMPARING else kind, bits))
        lines.append(f"const {'bool' if text in COMPARING else kind} k{n} = {text};")
        lines.append(f"hdr.h.r{n} = {'(bit<1>)' if text in COMPARING else ''}k{n};")
    size = (sum(bits for _, _, bits in results) + 7) // 8
    with tempfile.TemporaryDirectory() as folder:
        one = switch(pathlib.Path(folder), fields=padded(fields), apply="\n".join(lines))
    out = int.from_bytes(through(one, bytes(size)), "big")
    shift = 8 * size
    for text, value, bits in results:
        shift -= bits
        assert (out >> shift) & ((1 << bits) - 1) == value, (text, width, signed, a, b, s)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.data())
def test_concatenation_slices_and_casts(one: int, other: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, one - 1))
    high = data.draw(st.integers(low, one - 1))
    a, b = data.draw(numbers(one, False)), data.draw(numbers(other, False))
    count = high - low + 1
    outs = [
        ("hdr.h.a ++ hdr.h.b", (a << other) | b, one + other),
        (f"(bit<{other}>)hdr.h.a", a % (1 << other), other),
        (f"hdr.h.a[{high}:{low}]", (a >> low) % (1 << count), count),
        (f"(bit<{one}>)(hdr.h.a ++ hdr.h.b)", ((a << other) | b) % (1 << one), one),
    ]
    # bits high..low of a are replaced by those of b, and those above and below stay
    new = b % (1 << count)
    assigned = a & ~(((1 << count) - 1) << low) | (new << low)
    fields = [("a", f"bit<{one}>", one), ("b", f"bit<{other}>", other)]
    fields += [(f"r{n}", f"bit<{width}>", width) for n, (_, _, width) in enumerate(outs)] + [("x", f"bit<{one}>", one)]
    lines = [f"hdr.h.r{n} = {text};" for n, (text, _, _) in enumerate(outs)]
    lines.append(f"hdr.h.x = hdr.h.a; hdr.h.x[{high}:{low}] = (bit<{count}>)hdr.h.b;")
    with tempfile.TemporaryDirectory() as folder:
        subject = switch(pathlib.Path(folder), fields=padded(fields), apply="\n".join(lines))
    size = (sum(width for _, _, width in fields) + 7) // 8
    packet = ((a << other) | b) << (8 * size - one - other)
    out = int.from_bytes(through(subject, packet.to_bytes(size, "big")), "big")
    shift = 8 * size - one - other
    for text, value, width in [*outs, ("slice = ", assigned, one)]:
        shift -= width
        assert (out >> shift) & ((1 << width) - 1) == value, text


def test_signed_casts_and_slices(tmp_path: pathlib.Path) -> None:
    one = switch(
        tmp_path,
        fields="int<8> a; int<16> wide; int<4> narrow; bit<4> cut; bit<8> plain; int<12> joined; int<4> patched;",
        apply="""
        hdr.h.wide = (int<16>)hdr.h.a;
        hdr.h.narrow = (int<4>)hdr.h.a;
        hdr.h.cut = hdr.h.a[7:4];
        hdr.h.plain = (bit<8>)hdr.h.a;
        hdr.h.joined = hdr.h.a ++ 4w0xF;
        hdr.h.patched = 0;
        hdr.h.patched[3:2] = 2w2;
        """,
    )
    out = through(one, bytes([0xA7]) + bytes(6))
    assert out == bytes.fromhex("a7 ffa7 7a a7 a7f8")


def test_constants_with_all_kinds_of_numbers(tmp_path: pathlib.Path) -> None:
    one = switch(
        tmp_path,
        fields="bit<8> a; bit<8> b; bit<8> c; bit<8> d; int<8> e; bit<16> f; bit<8> g;",
        locals="const bit<8> SEVEN = 7; const int BIG = 1 << 100;",
        apply="""
        hdr.h.a = 0b1010_1010;
        hdr.h.b = 8w0x1F;
        hdr.h.c = 0o17 + SEVEN;
        hdr.h.d = (bit<8>)(BIG >> 98);
        hdr.h.e = 8s5 - 7;
        hdr.h.f = (bit<16>)-1;
        hdr.h.g = 17 % 5 * 10 / 3;
        """,
    )
    assert through(one, bytes(8)) == bytes([0xAA, 0x1F, 22, 4, 254, 255, 255, 6])


def test_modulo_by_a_power_of_two(tmp_path: pathlib.Path) -> None:
    one = switch(tmp_path, fields="bit<8> a; bit<8> b;", apply="hdr.h.b = hdr.h.a % 16;")
    assert through(one, bytes([0x57, 0])) == bytes([0x57, 7])


def test_and_and_or_stop_early(tmp_path: pathlib.Path) -> None:
    # The right side has an effect, so that it shows whether it was computed.
    one = switch(
        tmp_path,
        fields="bit<8> a; bit<8> n;",
        types="bool touch(inout bit<8> n) { n = n + 1; return true; }",
        apply="""
        if (hdr.h.a == 1 && touch(hdr.h.n)) { hdr.h.a = 11; }
        if (hdr.h.a == 2 || touch(hdr.h.n)) { hdr.h.n = hdr.h.n + 16; }
        bool both = touch(hdr.h.n) && touch(hdr.h.n) && hdr.h.a == 2;
        if (both) { hdr.h.n = hdr.h.n + 128; }
        """,
    )
    assert through(one, bytes([1, 0])) == bytes([11, 20])
    assert through(one, bytes([2, 0])) == bytes([2, 16 + 2 + 128])
    assert through(one, bytes([3, 0])) == bytes([3, 19])


def test_operands_are_computed_from_left_to_right(tmp_path: pathlib.Path) -> None:
    one = switch(
        tmp_path,
        fields="bit<8> a; bit<8> b; bit<8> c;",
        types="bit<8> next(inout bit<8> n) { n = n + 1; return n; }",
        apply="""
        hdr.h.b = hdr.h.a + next(hdr.h.a) * 16;
        hdr.h.c = next(hdr.h.a) - next(hdr.h.a);
        """,
    )
    assert through(one, bytes([1, 0, 0])) == bytes([4, 1 + 2 * 16, 255])


def test_enums_errors_and_new_types(tmp_path: pathlib.Path) -> None:
    one = switch(
        tmp_path,
        types="""
        enum bit<8> Kind { one = 1, two = 2 }
        enum Plain { x, y }
        type bit<8> Port_t;
        typedef bit<8> byte_t;
        error { Mine }
        """,
        fields="Kind kind; byte_t b; bit<8> c; bit<8> d;",
        apply="""
        Plain p = Plain.y;
        if (p == Plain.y && p != Plain.x) { hdr.h.b = 5; }
        if (hdr.h.kind == Kind.two) { hdr.h.c = hdr.h.kind + 1; }
        hdr.h.kind = Kind.one;
        Port_t port = (Port_t)hdr.h.b;
        error e = error.Mine;
        if (port == (Port_t)8w5 && e != error.NoError) { hdr.h.d = (bit<8>)port; }
        """,
    )
    assert through(one, bytes([2, 0, 0, 0])) == bytes([1, 5, 3, 5])


def test_the_program_is_one_text(tmp_path: pathlib.Path) -> None:
    text = source(apply="hdr.h.a = hdr.h.a + 1;")
    loaded = program(tmp_path, text)
    assert "def parser(" in loaded.python
    assert loaded.architecture == "v1model"
