"""Tables: ways to match, priorities, the control plane's calls and their errors, counters, entries of the source."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import p4
from tests.p4.harness import program, switch, through

TABLE = """
    action set(bit<8> v) {{ hdr.h.res = v; }}
    action none() {{ hdr.h.res = 255; }}
    action hidden(bit<8> v) {{ hdr.h.res = v; }}
    {extra}
    table t {{
        key = {{ {key} }}
        actions = {{ set; none; }}
        default_action = none();
        {properties}
    }}
"""
FIELDS = "bit<32> a; bit<8> b; bit<8> res;"


def table(folder: pathlib.Path, key: str, properties: str = "size = 64;", extra: str = "") -> p4.V1Switch:
    """Return a switch with one table."""
    return switch(
        folder, fields=FIELDS, locals=TABLE.format(key=key, properties=properties, extra=extra), apply="t.apply();"
    )


def look(one: p4.V1Switch, a: int, b: int = 0) -> int:
    """Return what the table gives for a key."""
    return through(one, a.to_bytes(4, "big") + bytes([b, 0]))[5]


def add(one: p4.V1Switch, key: Any, value: int, priority: int | None = None) -> None:
    """Add an entry that gives a value."""
    one.tables["TestIngress.t"].add(key, "set", {"v": value}, priority)


def test_exact(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: exact; hdr.h.b: exact;")
    add(one, {"hdr.h.a": 7, "hdr.h.b": 1}, 10)
    add(one, (7, 2), 20)
    assert [look(one, 7, 1), look(one, 7, 2), look(one, 7, 3), look(one, 8, 1)] == [10, 20, 255, 255]
    one.tables["TestIngress.t"].delete((7, 1))
    assert look(one, 7, 1) == 255
    one.tables["TestIngress.t"].set_default("set", {"v": 3})
    assert look(one, 9) == 3


def test_the_longest_prefix_wins(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: lpm; hdr.h.b: exact;")
    add(one, ((0x0A000000, 8), 1), 8)
    add(one, ((0x0A010000, 16), 1), 16)
    add(one, ((0x0A010203, 32), 1), 32)
    add(one, ((0, 0), 2), 1)
    found = [look(one, a, b) for a, b in [(0x0A050505, 1), (0x0A010505, 1), (0x0A010203, 1), (0x0A010203, 2), (0, 1)]]
    assert found == [8, 16, 32, 1, 255]
    one.tables["TestIngress.t"].delete(((0x0A010000, 16), 1))
    assert look(one, 0x0A010505, 1) == 8


def test_the_greatest_priority_wins(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: ternary; hdr.h.b: range;")
    add(one, ((0x10, 0xF0), (0, 9)), 1, priority=5)
    add(one, ((0x12, 0xFF), None), 2, priority=9)
    add(one, (None, (5, 5)), 3, priority=7)
    add(one, (None, None), 4, priority=1)
    found = [look(one, a, b) for a, b in [(0x11, 3), (0x12, 3), (0x11, 5), (0x11, 10), (0x12, 5)]]
    assert found == [1, 2, 3, 4, 2]
    assert [entry.priority for entry in one.tables["TestIngress.t"].entries()] == [9, 7, 5, 1]


def test_optional_and_lpm_among_ternary(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: lpm; hdr.h.b: optional;")
    add(one, ((0x0A000000, 8), None), 1, priority=1)
    add(one, ((0x0A000000, 8), 4), 2, priority=2)
    assert [look(one, 0x0A000001, 3), look(one, 0x0A000001, 4), look(one, 0x0B000001, 4)] == [1, 2, 255]


ROW = st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 15), st.integers(0, 15))


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, max_size=12), keys=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=8))
def test_ternary_and_range_against_a_model(shared: p4.V1Switch, rows: list[Any], keys: list[Any]) -> None:
    one = shared.tables["TestIngress.t"]
    one.clear()
    model = []
    for number, (value, mask, bound, other) in enumerate(rows):
        low, high = min(bound, other), max(bound, other)
        if any(row[1:5] == (value & mask, mask, low, high) and row[0] == number % 3 for row in model):
            continue
        one.add({"hdr.h.a": (value, mask), "hdr.h.b": (low, high)}, "set", {"v": number}, priority=number % 3)
        model.append((number % 3, value & mask, mask, low, high, number))
    for a, b in keys:
        fitting = [row for row in model if a & row[2] == row[1] and row[3] <= b <= row[4]]
        best = max(fitting, key=lambda row: (row[0], -row[5])) if fitting else None
        assert look(shared, a, b) == (best[5] if best else 255)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> p4.V1Switch:
    """Return a switch with a ternary and range table."""
    return table(tmp_path_factory.mktemp("shared"), "hdr.h.a: ternary; hdr.h.b: range;")


PREFIX = st.integers(0, 32).flatmap(
    lambda n: st.tuples(st.integers(0, (1 << n) - 1).map(lambda v: v << (32 - n)), st.just(n))
)


@pytest.fixture(scope="module")
def prefixes(tmp_path_factory: pytest.TempPathFactory) -> p4.V1Switch:
    """Return a switch with an lpm table."""
    return table(tmp_path_factory.mktemp("prefixes"), "hdr.h.a: lpm;")


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(PREFIX, max_size=10, unique=True),
    addresses=st.lists(st.integers(0, 2**32 - 1), min_size=4),
    pick=st.data(),
)
def test_lpm_against_a_model(
    prefixes: p4.V1Switch, rows: list[tuple[int, int]], addresses: list[int], pick: Any
) -> None:
    one = prefixes.tables["TestIngress.t"]
    one.clear()
    for number, row in enumerate(rows):
        one.add(row, "set", {"v": number})
    near = [value | pick.draw(st.integers(0, (1 << (32 - n)) - 1)) for value, n in rows]
    for address in addresses + near:
        fitting = [(n, number) for number, (value, n) in enumerate(rows) if address >> (32 - n) == value >> (32 - n)]
        assert look(prefixes, address) == (max(fitting)[1] if fitting else 255)


def test_entries_of_the_source_are_tried_in_order(tmp_path: pathlib.Path) -> None:
    entries = """const entries = {
        (0x10 &&& 0xF0, 3): set(1);
        (_, 4 .. 6): set(2);
        (0x12, _): set(3);
        (_, _): set(4);
    }"""
    one = table(tmp_path, "hdr.h.a: ternary; hdr.h.b: range;", entries)
    assert [look(one, *key) for key in [(0x11, 3), (0x12, 5), (0x12, 9), (0x99, 9)]] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="has const entries"):
        add(one, (None, None), 1, priority=1)


def test_entries_that_are_not_const_can_be_added_to(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: lpm;", "entries = { 0x0A000000 &&& 0xFF000000: set(1); 5: set(2); }")
    add(one, (0x0A0B0000, 16), 3)
    assert [look(one, a) for a in (0x0A000001, 5, 0x0A0B0001, 6)] == [1, 2, 3, 255]
    one.tables["TestIngress.t"].clear()
    assert [look(one, a) for a in (0x0A0B0001, 5)] == [1, 2]


def test_hit_and_miss(tmp_path: pathlib.Path) -> None:
    locals_ = TABLE.format(key="hdr.h.a: exact;", properties="", extra="")
    apply = "if (t.apply().hit) { hdr.h.b = 1; } else { hdr.h.b = 2; }"
    one = switch(tmp_path, fields=FIELDS, locals=locals_, apply=apply)
    add(one, 5, 9)
    assert through(one, bytes([0, 0, 0, 5, 0, 0])) == bytes([0, 0, 0, 5, 1, 9])
    assert through(one, bytes([0, 0, 0, 6, 0, 0])) == bytes([0, 0, 0, 6, 2, 255])
    other = switch(tmp_path, fields=FIELDS, locals=locals_, apply="if (!t.apply().miss) { hdr.h.b = 1; }")
    add(other, 5, 9)
    assert through(other, bytes([0, 0, 0, 5, 0, 0]))[4] == 1


def test_actions_with_arguments_of_both_kinds(tmp_path: pathlib.Path) -> None:
    locals_ = """
    action put(inout bit<8> where, in bit<8> plus, bit<8> v) { where = v + plus; }
    table t {
        key = { hdr.h.a: exact; }
        actions = { put(hdr.h.res, hdr.h.b); @defaultonly NoAction; }
    }
    """
    one = switch(tmp_path, fields=FIELDS, locals=locals_, apply="t.apply();")
    one.tables["TestIngress.t"].add(1, "TestIngress.put", {"v": 30})
    assert [look(one, 1, 4), look(one, 2, 4)] == [34, 0]


def test_a_direct_counter_counts_per_entry(tmp_path: pathlib.Path) -> None:
    extra = "direct_counter(CounterType.packets_and_bytes) seen;"
    for key, entry in [("hdr.h.a: exact;", 5), ("hdr.h.a: lpm;", (5, 32)), ("hdr.h.a: ternary;", (5, 0xFF))]:
        one = table(tmp_path, key, "counters = seen;", extra)
        add(one, entry, 1, priority=1 if "ternary" in key else None)
        for a in (5, 5, 6):
            look(one, a)
        counter = one.counters["TestIngress.seen"]
        assert counter[entry] == (2, 12)
        counter.clear()
        assert counter[entry].packets == 0


def test_names_with_annotations(tmp_path: pathlib.Path) -> None:
    locals_ = """
    @name("put") action set(bit<8> v) { hdr.h.res = v; }
    @name(".global_table") table t {
        key = { hdr.h.a: exact @name("address"); hdr.h.b[3:0]: exact; hdr.h.isValid(): exact; }
        actions = { set; }
    }
    """
    one = switch(tmp_path, fields=FIELDS, locals=locals_, apply="t.apply();")
    key = {"address": 1, "hdr.h.b[3:0]": 2, "hdr.h.isValid()": True}
    one.tables["global_table"].add(key, "TestIngress.put", {"v": 6})
    assert [look(one, 1, 0xF2), look(one, 1, 0x2F)] == [6, 0]


@pytest.mark.parametrize(
    ("key", "arguments", "message"),
    [
        ("hdr.h.a: exact;", (5, "nothing", {}), "table TestIngress.t has no action nothing; it has TestIngress.set"),
        ("hdr.h.a: exact;", (5, "hidden", {"v": 1}), "table TestIngress.t has no action hidden"),
        ("hdr.h.a: exact;", (5, "set", {}), "action TestIngress.set takes v, not "),
        ("hdr.h.a: exact;", (5, "none", {"v": 1}), "action TestIngress.none takes no data, not v"),
        ("hdr.h.a: exact;", (5, "set", {"v": 256}), "v of action TestIngress.set is bit<8>, and 256 does not fit"),
        ("hdr.h.a: exact;", (2**32, "set", {"v": 1}), "key hdr.h.a of table TestIngress.t is bit<32>, and 4294967296"),
        ("hdr.h.a: exact;", ("x", "set", {"v": 1}), "give a whole number, not 'x'"),
        ("hdr.h.a: exact;", ({"a": 5}, "set", {"v": 1}), "table TestIngress.t has the keys hdr.h.a, not a"),
        ("hdr.h.a: exact;", ((5, 6), "set", {"v": 1}), r"table TestIngress.t has 1 key \(hdr.h.a\), not 2"),
        ("hdr.h.a: exact;", (5, "set", {"v": 1}, 3), "an entry takes no priority; the key decides"),
        ("hdr.h.a: lpm;", (5, "set", {"v": 1}), r"is matched lpm: give \(value, prefix length\), not 5"),
        ("hdr.h.a: lpm;", ((5, 33), "set", {"v": 1}), "a prefix of 33 bits; there are 32"),
        ("hdr.h.a: ternary;", ((5, 1), "set", {"v": 1}), "an entry needs a priority"),
        ("hdr.h.a: range;", ((5, 1), "set", {"v": 1}, 1), r"the range \(5, 1\) is empty"),
    ],
)
def test_wrong_calls_of_the_control_plane(tmp_path: pathlib.Path, key: str, arguments: Any, message: str) -> None:
    one = table(tmp_path, key)
    with pytest.raises(ValueError, match=message):
        one.tables["TestIngress.t"].add(*arguments)
    assert one.tables["TestIngress.t"].entries() == []


def test_what_is_not_there(tmp_path: pathlib.Path) -> None:
    one = table(tmp_path, "hdr.h.a: exact;", "size = 2;", "register<bit<8>>(4) cells; counter(2, CounterType.bytes) c;")
    with pytest.raises(KeyError, match=r"there is no table 't'; the program has TestIngress\.t"):
        one.tables["t"]
    with pytest.raises(KeyError, match="there is no register"):
        one.registers["cells"]
    with pytest.raises(IndexError, match=r"TestIngress\.cells has the cells 0 to 3, not 4"):
        one.registers["TestIngress.cells"][4]
    with pytest.raises(ValueError, match="256 does not fit into register"):
        one.registers["TestIngress.cells"][0] = 256
    with pytest.raises(IndexError, match="indices 0 to 1, not 2"):
        one.counters["TestIngress.c"][2]
    with pytest.raises(ValueError, match="has no entry with the key"):
        one.tables["TestIngress.t"].delete(5)
    add(one, 5, 1)
    with pytest.raises(ValueError, match="has an entry with the key"):
        add(one, 5, 2)
    add(one, 6, 1)
    with pytest.raises(ValueError, match="is full: it has 2 entries"):
        add(one, 7, 1)
    with pytest.raises(ValueError, match="a multicast group is a number from 1"):
        one.multicast[0] = []
    with pytest.raises(ValueError, match="no copy can go to port 511"):
        one.multicast[1] = [(511, 0)]
    with pytest.raises(ValueError, match="a port is a number from 0 to 510"):
        one.process(b"", 511, 0)
    with pytest.raises(ValueError, match="has a const default_action"):
        const = table(tmp_path, "hdr.h.a: exact;", "", "").program
        text = pathlib.Path(const.path).read_text().replace("default_action = none", "const default_action = none")
        p4.V1Switch(program(tmp_path, text)).tables["TestIngress.t"].set_default("set", {"v": 1})
