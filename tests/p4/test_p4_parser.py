"""Parsers: extraction, selects, looking ahead, errors, truncated packets, header stacks, varbits."""

from __future__ import annotations

import pathlib
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import p4
from tests.p4.harness import switch, through

ERRORS = ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout"]


def parsing(folder: pathlib.Path, states: str, apply: str = "", **parts: str) -> p4.V1Switch:
    """Return a switch whose first header has a field for the parser error; the states come after its extraction."""
    parts = {"fields": "bit<8> a; bit<8> b;"} | parts
    report = "hdr.report.setValid(); hdr.report.code = standard.parser_error == error.NoError ? 8w0 : 255;"
    for number, name in enumerate(ERRORS[1:], 1):
        report += f" if (standard.parser_error == error.{name}) {{ hdr.report.code = {number}; }}"
    types = parts.pop("types", "") + " header report_t { bit<8> code; }"
    headers = parts.pop("headers", "") + " report_t report;"
    return switch(folder, parse=states, types=types, headers=headers, apply=report + apply, **parts)


def code(one: p4.V1Switch, packet: bytes) -> str:
    """Return the parser error of a packet whose headers all are in front of the report."""
    frame = through(one, packet)
    return ERRORS[frame[min(len(packet), 2)]]


@pytest.mark.parametrize("size", range(12))
def test_a_packet_cut_anywhere(tmp_path: pathlib.Path, size: int) -> None:
    """Headers that are whole are there, the others not, and the rest is payload."""
    types = "header one_t { bit<16> v; } header two_t { bit<32> v; bit<8> w; }"
    states = "transition more; } state more { packet.extract(hdr.one); packet.extract(hdr.two); transition accept;"
    one = parsing(tmp_path, states, types=types, headers="one_t one; two_t two;")
    packet = bytes(range(10, 22))[:size]
    frame = through(one, packet)
    whole = max(n for n in (0, 2, 4, 9) if n <= size)
    assert frame == packet[:whole] + bytes([0 if size >= 9 else 1]) + packet[whole:]


def test_select_by_values_masks_ranges_and_tuples(tmp_path: pathlib.Path) -> None:
    names = ["exact", "masked", "ranged", "pair", "any_b", "rest"]
    cases = """
        (1, 1): exact;
        (0x40 &&& 0xF0, _): masked;
        (0x10 .. 0x1F, 5): ranged;
        (7, 8): pair;
        (9, _): any_b;
        default: rest;
    """
    states = f"transition select(hdr.h.a, hdr.h.b) {{ {cases} }} }}"
    for number, name in enumerate(names):
        states += f" state {name} {{ meta.went = {number}; transition accept; }}"
    one = switch(
        tmp_path, fields="bit<8> a; bit<8> b;", parse=states[:-1], meta="bit<8> went;", apply="hdr.h.a = meta.went;"
    )
    expected = {
        (1, 1): "exact",
        (1, 2): "rest",
        (0x4F, 3): "masked",
        (0x50, 3): "rest",
        (0x10, 5): "ranged",
        (0x1F, 5): "ranged",
        (0x1F, 6): "rest",
        (7, 8): "pair",
        (9, 200): "any_b",
    }
    for (a, b), name in expected.items():
        assert names[through(one, bytes([a, b]))[0]] == name, (a, b)


@pytest.fixture(scope="module")
def choosing(tmp_path_factory: pytest.TempPathFactory) -> p4.V1Switch:
    """Return a switch that answers which case of a select took a number."""
    cases = "0 .. 9: low; 0x80 &&& 0xC0: masked; 77: exact; default: other;"
    states = f"transition select(hdr.h.a) {{ {cases} }} }}"
    for number, name in enumerate(["low", "masked", "exact", "other"]):
        states += f" state {name} {{ meta.went = {number}; transition accept; }}"
    folder = tmp_path_factory.mktemp("choosing")
    return switch(folder, parse=states[:-1], meta="bit<8> went;", apply="hdr.h.a = meta.went;")


@settings(deadline=None)
@given(a=st.integers(0, 255))
def test_select_against_a_model(choosing: p4.V1Switch, a: int) -> None:
    expected = 0 if a <= 9 else 1 if a & 0xC0 == 0x80 else 2 if a == 77 else 3
    assert through(choosing, bytes([a])) == bytes([expected])


def test_no_match_is_an_error(tmp_path: pathlib.Path) -> None:
    one = parsing(tmp_path, "transition select(hdr.h.a) { 1: accept; }")
    assert code(one, bytes([1, 0])) == "NoError"
    assert code(one, bytes([2, 0])) == "NoMatch"


def test_verify_sets_the_error_and_ends_parsing(tmp_path: pathlib.Path) -> None:
    states = "verify(hdr.h.a == 1, error.HeaderTooShort); meta.after = 9; transition accept;"
    one = parsing(tmp_path, states, meta="bit<8> after;", apply="if (meta.after == 9) { hdr.h.b = 9; }")
    assert through(one, bytes([1, 0])) == bytes([1, 9, 0])
    assert through(one, bytes([2, 0])) == bytes([2, 0, ERRORS.index("HeaderTooShort")])


def test_looking_ahead_takes_nothing(tmp_path: pathlib.Path) -> None:
    types = "header next_t { bit<4> x; bit<4> y; }"
    states = """
        bit<4> nibble = packet.lookahead<bit<4>>();
        bit<12> twelve = packet.lookahead<bit<12>>();
        meta.all = nibble ++ twelve ++ packet.lookahead<next_t>().y;
        transition accept;
    """
    one = parsing(
        tmp_path, states, types=types, meta="bit<20> all;", apply="hdr.h.a = meta.all[19:12]; hdr.h.b = meta.all[7:0];"
    )
    assert through(one, bytes([1, 2, 0xAB, 0xCD])) == bytes([0xAA, 0xCB, 0, 0xAB, 0xCD])
    assert code(one, bytes([1, 2, 0xAB])) == "PacketTooShort"


def test_advance(tmp_path: pathlib.Path) -> None:
    types = "header next_t { bit<8> v; }"
    states = "packet.advance(16); packet.advance((bit<32>)hdr.h.a * 8); packet.extract(hdr.next); transition accept;"
    one = parsing(tmp_path, states, types=types, headers="next_t next;")
    assert through(one, bytes([1, 2, 0, 0, 0, 7, 9])) == bytes([1, 2, 7, 0, 9])
    assert through(one, bytes([9, 2, 0, 0, 0, 7, 9])) == bytes([9, 2, 1, 0, 7, 9])  # the second advance was too far


def test_a_stack_is_filled_until_it_is_full(tmp_path: pathlib.Path) -> None:
    types = "header one_t { bit<7> v; bit<1> more; }"
    states = """
        transition loop; }
        state loop {
            packet.extract(hdr.s.next);
            transition select(hdr.s.last.more) { 1: loop; default: accept; }
    """
    one = parsing(tmp_path, states, types=types, headers="one_t[3] s;")
    assert through(one, bytes([9, 9, 3, 5, 2, 8])) == bytes([9, 9, 3, 5, 2, 0, 8])
    assert through(one, bytes([9, 9, 3, 5, 7, 8])) == bytes([9, 9, 3, 5, 7, 3, 8])  # StackOutOfBounds
    assert through(one, bytes([9, 9, 3, 5])) == bytes([9, 9, 3, 5, 1])  # PacketTooShort


def test_a_varbit_takes_as_many_bits_as_it_is_given(tmp_path: pathlib.Path) -> None:
    types = "header options_t { bit<8> count; varbit<32> data; bit<8> end; }"
    states = "packet.extract(hdr.o, (bit<32>)hdr.h.a); transition accept;"
    one = parsing(tmp_path, states, types=types, headers="options_t o;", apply="hdr.o.end = hdr.o.end + 1;")
    assert through(one, bytes([16, 0, 2, 0xAB, 0xCD, 7, 8])) == bytes([16, 0, 2, 0xAB, 0xCD, 8, 0, 8])
    assert through(one, bytes([0, 0, 2, 7, 8])) == bytes([0, 0, 2, 8, 0, 8])
    assert code(one, bytes([40, 0]) + bytes(9)) == "HeaderTooShort"
    assert code(one, bytes([32, 0]) + bytes(5)) == "PacketTooShort"


def test_a_loop_that_reads_nothing_ends(tmp_path: pathlib.Path) -> None:
    one = parsing(
        tmp_path, "transition select(hdr.h.a) { 1: start2; default: accept; } } state start2 { transition start2;"
    )
    assert code(one, bytes([1, 0])) == "ParserTimeout"
    assert code(one, bytes([2, 0])) == "NoError"


def test_extract_can_skip_a_header(tmp_path: pathlib.Path) -> None:
    types = "header skip_t { bit<24> v; }"
    one = parsing(tmp_path, "packet.extract<skip_t>(_); transition accept;", types=types)
    assert through(one, bytes([1, 2, 3, 4, 5, 6])) == bytes([1, 2, 0, 6])


def test_conditions_and_variables_in_a_state(tmp_path: pathlib.Path) -> None:
    states = "bit<8> x = hdr.h.a + 1; if (x == 5) { meta.v = 50; } else { meta.v = x; } transition accept;"
    one = parsing(tmp_path, states, meta="bit<8> v;", apply="hdr.h.b = meta.v;")
    assert through(one, bytes([4, 0])) == bytes([4, 50, 0])
    assert through(one, bytes([7, 0])) == bytes([7, 8, 0])


@pytest.mark.parametrize("packet", [b"", b"\x01", bytes(1500), bytes(9000), bytes(65535)])
def test_packets_of_every_size(tmp_path: pathlib.Path, packet: bytes) -> None:
    one = switch(
        tmp_path, fields="bit<16> a;", apply="if (standard.parser_error != error.NoError) { hdr.h.setInvalid(); }"
    )
    assert through(one, packet) == packet


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 70), st.booleans()), min_size=1, max_size=12), st.data())
def test_fields_of_any_widths_survive(fields: list[tuple[int, bool]], data: st.DataObject) -> None:
    """What is parsed and sent again unchanged is the same, wherever fields begin and end."""
    lines = [f"{'int' if signed and width > 1 else 'bit'}<{width}> f{n};" for n, (width, signed) in enumerate(fields)]
    total = sum(width for width, _ in fields)
    if total % 8:
        lines.append(f"bit<{-total % 8}> spare;")
    apply = "".join(f"hdr.h.f{n} = hdr.h.f{n} + 1; hdr.h.f{n} = hdr.h.f{n} - 1;" for n in range(len(fields)))
    packet = data.draw(st.binary(min_size=(total + 7) // 8, max_size=(total + 7) // 8 + 3))
    with tempfile.TemporaryDirectory() as folder:
        assert through(switch(pathlib.Path(folder), fields=" ".join(lines), apply=apply), packet) == packet
