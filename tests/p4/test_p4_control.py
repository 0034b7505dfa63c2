"""Controls, actions and functions: parameters copied in and out, return, exit, switch, loops, objects."""

from __future__ import annotations

import pathlib

import pytest

from collectives import p4
from tests.p4.harness import switch, through

# Two fields, and a function, an action and a control to hand them to.
TWO = {"fields": "bit<8> a; bit<8> b;"}


def run(tmp_path: pathlib.Path, apply: str, packet: bytes = bytes([1, 2]), **parts: str) -> bytes:
    """Return what one packet becomes."""
    return through(switch(tmp_path, apply=apply, **(TWO | parts)), packet)


# ---- parameters


def test_inout_parameters_are_copied_back_at_the_end(tmp_path: pathlib.Path) -> None:
    # While the action runs, the field still has its old value, since x is a copy.
    action = "action f(inout bit<8> x) { x = x + 10; hdr.h.b = hdr.h.a; x = x + 10; }"
    assert run(tmp_path, "f(hdr.h.a);", locals=action) == bytes([21, 1])


def test_the_same_argument_twice_is_copied_back_from_left_to_right(tmp_path: pathlib.Path) -> None:
    types = "void f(inout bit<8> x, inout bit<8> y) { x = x + 1; y = y + 10; }"
    assert run(tmp_path, "f(hdr.h.a, hdr.h.a);", types=types) == bytes([11, 2])


def test_a_header_given_twice_is_copied(tmp_path: pathlib.Path) -> None:
    parts = {
        "types": "header data2_t { bit<8> v; }",
        "headers": "data2_t x;",
        "locals": "Both() both;",
    }
    control = "control Both(inout data2_t p, inout data2_t q) { apply { p.v = 7; q.v = q.v + 1; } }"
    parts["types"] += control
    apply = "hdr.x.setValid(); hdr.x.v = 1; both.apply(hdr.x, hdr.x); hdr.h.a = hdr.x.v;"
    assert run(tmp_path, apply, **parts) == bytes([2, 2, 2])  # q, copied back last, saw 1


def test_an_in_parameter_keeps_its_value(tmp_path: pathlib.Path) -> None:
    action = "action f(in bit<8> x) { hdr.h.a = 50; hdr.h.b = x; }"
    assert run(tmp_path, "f(hdr.h.a);", locals=action) == bytes([50, 1])


def test_a_struct_that_is_in_is_a_copy_where_it_could_change(tmp_path: pathlib.Path) -> None:
    types = "struct pair_t { bit<8> x; bit<8> y; }"
    action = "action f(in pair_t p) { meta.pair.x = 9; hdr.h.a = p.x; }"
    out = run(
        tmp_path,
        "meta.pair.x = 3; f(meta.pair); hdr.h.b = meta.pair.x;",
        types=types,
        meta="pair_t pair;",
        locals=action,
    )
    assert out == bytes([3, 9])


def test_out_parameters_begin_at_zero(tmp_path: pathlib.Path) -> None:
    types = "void f(out bit<8> x, out bit<8> y) { y = x + 4; }"
    assert run(tmp_path, "f(hdr.h.a, hdr.h.b);", types=types) == bytes([0, 4])


def test_an_out_header_begins_invalid(tmp_path: pathlib.Path) -> None:
    types = """
    header more_t { bit<8> v; }
    control Make(out more_t x, out bit<8> was) { apply { was = x.isValid() ? 8w1 : 8w2; } }
    """
    apply = "hdr.x.setValid(); Make.apply(hdr.x, hdr.h.a); hdr.h.b = hdr.x.isValid() ? 8w1 : 8w2;"
    assert run(tmp_path, apply, types=types, headers="more_t x;") == bytes([2, 2])


def test_a_slice_as_an_out_argument(tmp_path: pathlib.Path) -> None:
    types = "void f(inout bit<4> x) { x = x + 1; }"
    out = run(tmp_path, "f(hdr.h.a[7:4]); f(hdr.h.b[3:0]);", bytes([0xF3, 0xCF]), types=types)
    assert out == bytes([0x03, 0xC0])


def test_arguments_are_computed_from_left_to_right(tmp_path: pathlib.Path) -> None:
    types = """
    bit<8> next(inout bit<8> x) { x = x + 1; return x; }
    bit<8> join(in bit<8> x, inout bit<8> y, in bit<8> z) { y = y + 100; return x * 16 + z; }
    struct pair_t { bit<8> x; bit<8> y; }
    bit<8> first(in pair_t p, in bit<8> z) { return p.x * 16 + z; }
    """
    apply = """
    bit<8> v = hdr.h.a;
    hdr.h.b = join(v, hdr.h.c, next(v));
    hdr.h.a = v;
    meta.p.x = 3;
    hdr.h.d = first(meta.p, next(meta.p.x));
    """
    fields = "bit<8> a; bit<8> b; bit<8> c; bit<8> d;"
    out = run(tmp_path, apply, bytes([1, 0, 5, 0]), types=types, fields=fields, meta="pair_t p;")
    assert out == bytes([2, 0x12, 105, 0x34])


def test_keys_are_computed_from_left_to_right(tmp_path: pathlib.Path) -> None:
    types = "bit<8> next(inout bit<8> x) { x = x + 1; return x; }"
    locals_ = """
    action hit() { hdr.h.b = 77; }
    table t {
        key = { hdr.h.a: exact @name("a"); next(hdr.h.a): exact @name("next"); }
        actions = { hit; NoAction; }
        const entries = { (1, 2): hit(); }
    }
    """
    assert run(tmp_path, "t.apply();", types=types, locals=locals_) == bytes([2, 77])


def test_an_index_is_computed_before_the_value_and_once(tmp_path: pathlib.Path) -> None:
    types = """
    header one_t { bit<8> v; }
    bit<8> next(inout bit<8> x) { x = x + 1; return x; }
    void raise(inout bit<8> x, inout bit<8> index) { index = 2; x = x + 50; }
    """
    apply = """
    hdr.s[0].setValid(); hdr.s[1].setValid(); hdr.s[2].setValid();
    bit<8> i = 0;
    hdr.s[i].v = next(i);
    raise(hdr.s[i].v, i);
    r.write((bit<32>)i, next(i));
    r.read(hdr.h.a, 2);
    hdr.h.b = i;
    """
    out = run(tmp_path, apply, types=types, headers="one_t[3] s;", locals="register<bit<8>>(4) r;")
    assert out == bytes([3, 3, 1, 50, 0])


def test_arguments_by_name(tmp_path: pathlib.Path) -> None:
    types = "bit<8> minus(in bit<8> x, in bit<8> y) { return x - y; }"
    assert run(tmp_path, "hdr.h.a = minus(y = 1, x = hdr.h.b);", types=types) == bytes([1, 2])


def test_sub_controls_have_state_of_their_own(tmp_path: pathlib.Path) -> None:
    types = """
    control Count(inout bit<8> x)(bit<32> size, bit<8> step) {
        register<bit<8>>(size) cells;
        apply {
            bit<8> v;
            cells.read(v, 0);
            v = v + step;
            cells.write(0, v);
            x = v;
        }
    }
    """
    locals_ = 'Count(4, 1) one; @name("two") Count(8, 10) other;'
    subject = switch(tmp_path, types=types, locals=locals_, apply="one.apply(hdr.h.a); other.apply(hdr.h.b);", **TWO)
    assert through(subject, bytes(2)) == bytes([1, 10])
    assert through(subject, bytes(2)) == bytes([2, 20])
    assert set(subject.registers) == {"TestIngress.one.cells", "TestIngress.two.cells"}
    assert len(subject.registers["TestIngress.two.cells"]) == 8


# ---- ways out


def test_return_leaves_only_the_action(tmp_path: pathlib.Path) -> None:
    action = "action f(in bit<8> x) { if (x == 1) { hdr.h.a = 7; return; } hdr.h.b = 8; }"
    assert run(tmp_path, "f(hdr.h.a); f(5);", locals=action) == bytes([7, 8])


def test_return_leaves_the_apply_block(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, "if (hdr.h.a == 1) { return; } hdr.h.b = 9;") == bytes([1, 2])


def test_exit_ends_the_pipeline_and_copies_out(tmp_path: pathlib.Path) -> None:
    types = """
    control Inner(inout bit<8> x) {
        action stop(inout bit<8> y) { y = 77; exit; }
        apply { stop(x); x = 0; }
    }
    """
    assert run(tmp_path, "Inner.apply(hdr.h.a); hdr.h.b = 0;", types=types) == bytes([77, 2])


def test_exit_in_a_table_ends_the_pipeline(tmp_path: pathlib.Path) -> None:
    locals_ = """
    action stop() { hdr.h.a = 3; exit; }
    table t { actions = { stop; } default_action = stop(); }
    """
    assert run(tmp_path, "t.apply(); hdr.h.b = 0;", locals=locals_) == bytes([3, 2])


# ---- switch and loops


def test_switch_on_a_value(tmp_path: pathlib.Path) -> None:
    apply = """
    switch (hdr.h.a) {
        1: { hdr.h.b = 11; }
        2:
        3: { hdr.h.b = 23; }
        default: { hdr.h.b = 99; }
    }
    """
    subject = switch(tmp_path, apply=apply, **TWO)
    assert [through(subject, bytes([n, 0]))[1] for n in (1, 2, 3, 4)] == [11, 23, 23, 99]


def test_switch_on_the_action_that_ran(tmp_path: pathlib.Path) -> None:
    locals_ = """
    action one() {} action two() {} action three() {}
    table t {
        key = { hdr.h.a: exact; }
        actions = { one; two; three; }
        const entries = { 1: one(); 2: two(); 3: three(); }
        default_action = three();
    }
    """
    apply = "switch (t.apply().action_run) { one: { hdr.h.b = 1; } two: three: { hdr.h.b = 23; } }"
    subject = switch(tmp_path, locals=locals_, apply=apply, **TWO)
    assert [through(subject, bytes([n, 0]))[1] for n in (1, 2, 3, 4)] == [1, 23, 23, 23]


def test_loops_in_actions(tmp_path: pathlib.Path) -> None:
    action = """
    action sum(in bit<8> n) {
        bit<8> total = 0;
        for (bit<8> i = 0; i < n; i = i + 1) {
            if (i == 2) { continue; }
            if (i == 6) { break; }
            for (bit<8> j = 0; j < 2; j += 1) { total = total + i; }
        }
        hdr.h.a = total;
    }
    """
    assert run(tmp_path, "sum(hdr.h.b);", bytes([0, 9]), locals=action) == bytes([2 * (0 + 1 + 3 + 4 + 5), 9])
    assert run(tmp_path, "sum(hdr.h.b);", bytes([0, 4]), locals=action) == bytes([2 * (0 + 1 + 3), 4])


def test_return_from_within_two_loops(tmp_path: pathlib.Path) -> None:
    action = """
    action find(in bit<8> wanted) {
        for (bit<8> i = 0; i < 16; i = i + 1) {
            for (bit<8> j = 0; j < 16; j = j + 1) {
                if (i * j == wanted) { hdr.h.a = i * 16 + j; return; }
            }
        }
        hdr.h.a = 0;
    }
    """
    assert run(tmp_path, "find(35); hdr.h.b = 1;", locals=action) == bytes([5 * 16 + 7, 1])
    assert run(tmp_path, "find(251); hdr.h.b = 1;", locals=action) == bytes([0, 1])


def test_compound_assignments(tmp_path: pathlib.Path) -> None:
    apply = "hdr.h.a += 5; hdr.h.a <<= 1; hdr.h.a |= 1; hdr.h.b |-|= 9; hdr.h.a ^= 0xF0;"
    assert run(tmp_path, apply) == bytes([(((1 + 5) << 1) | 1) ^ 0xF0, 0])


# ---- structs, headers, stacks


def test_structs_and_headers_are_values(tmp_path: pathlib.Path) -> None:
    types = "struct pair_t { bit<8> x; bit<8> y; }"
    apply = """
    pair_t p = { hdr.h.a, hdr.h.b };
    pair_t q = p;
    q.x = 50;
    p = { y = q.x, x = p.y };
    data_t d = hdr.h;
    d.a = p.x + p.y;
    if (q != p && d != hdr.h) { hdr.h = d; }
    tuple<bit<8>, bit<8>> both = { 8w3, hdr.h.a };
    hdr.h.b = both[0] + both[1];
    """
    assert run(tmp_path, apply, types=types) == bytes([52, 55])


def test_validity_belongs_to_a_header_s_value(tmp_path: pathlib.Path) -> None:
    apply = """
    data_t d;
    if (d == hdr.x) { hdr.h.a = 5; }      // both invalid: equal
    hdr.x = hdr.h;
    if (hdr.x.isValid() && hdr.x == hdr.h) { hdr.h.b = 6; }
    hdr.x.setInvalid();
    """
    assert run(tmp_path, apply, headers="data_t x;") == bytes([5, 6])


def test_a_stack_in_a_control(tmp_path: pathlib.Path) -> None:
    types = "header one_t { bit<8> v; }"
    apply = """
    hdr.s.push_front(2);
    hdr.s[0].setValid();
    hdr.s[0].v = 10;
    hdr.s[1] = { 20 };
    bit<8> i = hdr.h.a;
    hdr.s[i].v = hdr.s[i].v + 1;
    hdr.h.b = (bit<8>)hdr.s.size;
    """
    assert run(tmp_path, apply, types=types, headers="one_t[3] s;") == bytes([1, 3, 10, 21])


def test_an_index_out_of_range_names_its_place(tmp_path: pathlib.Path) -> None:
    locals_ = "register<bit<8>>(4) r;"
    subject = switch(
        tmp_path, locals=locals_, apply="r.write(0, 9);\n        r.read(hdr.h.b, (bit<32>)hdr.h.a);", **TWO
    )
    with pytest.raises(p4.P4RuntimeError, match=r"test\.p4:\d+:9: an index is out of range") as caught:
        subject.process(bytes([4, 0]), 0, 0)
    text = (tmp_path / "test.p4").read_text().splitlines()
    assert "r.read" in text[caught.value.line - 1]
    assert subject.registers["TestIngress.r"][0] == 9  # what was written before stays


# ---- externs


def test_assert_and_log(tmp_path: pathlib.Path) -> None:
    subject = switch(tmp_path, apply='log_msg("a is {} and b {}", {hdr.h.a, hdr.h.b}); assert(hdr.h.a == 1);', **TWO)
    texts: list[str] = []
    subject.on_log = texts.append
    through(subject, bytes([1, 2]))
    assert texts == ["a is 1 and b 2"]
    with pytest.raises(p4.P4RuntimeError, match="assert does not hold"):
        subject.process(bytes([2, 2]), 0, 0)


def test_chance_is_an_argument(tmp_path: pathlib.Path) -> None:
    apply = "random(hdr.h.a, 10, 20); random(hdr.h.b, 0, 255);"

    def draw(seed: int) -> list[bytes]:
        subject = switch(tmp_path, seed=seed, apply=apply, **TWO)
        return [through(subject, bytes(2)) for _ in range(50)]

    assert draw(1) == draw(1) != draw(2)
    assert {frame[0] for frame in draw(1)} <= set(range(10, 21))


def test_time_is_an_argument(tmp_path: pathlib.Path) -> None:
    subject = switch(
        tmp_path,
        fields="bit<48> t; bit<32> n;",
        apply="hdr.h.t = standard.ingress_global_timestamp; hdr.h.n = standard.packet_length;",
    )
    assert through(subject, bytes(14), now_us=(1 << 48) + 5) == (5).to_bytes(6, "big") + (14).to_bytes(
        4, "big"
    ) + bytes(4)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("csum16", 0xFFFF ^ (0x3132 + 0x3334)),
        ("crc16", None),
        ("xor16", 0x3132 ^ 0x3334),
        ("identity", 0x3334),
        ("crc32", 0x9BE3E0A3 & 0xFFFF),
    ],
)
def test_hashes(tmp_path: pathlib.Path, algorithm: str, expected: int | None) -> None:
    fields = "bit<8> a; bit<16> b; bit<8> c; bit<16> r;"
    apply = f"hash(hdr.h.r, HashAlgorithm.{algorithm}, 16w0, {{ hdr.h.a, hdr.h.b, hdr.h.c }}, 32w0x10000);"
    out = through(switch(tmp_path, fields=fields, apply=apply), b"1234\0\0")
    result = int.from_bytes(out[4:], "big")
    assert result == (0x14BA if expected is None else expected)


def test_checksums(tmp_path: pathlib.Path) -> None:
    fields = "bit<16> a; bit<16> b; bit<16> sum;"
    compute = "update_checksum(hdr.h.isValid(), { hdr.h.a, hdr.h.b }, hdr.h.sum, HashAlgorithm.csum16);"
    out = through(switch(tmp_path, fields=fields, compute=compute), bytes.fromhex("1234 ffff 0000"))
    assert out[4:] == (0xFFFF ^ (0x1234 + 0xFFFF - 0xFFFF)).to_bytes(2, "big")


def test_truncate_and_drop_in_the_egress(tmp_path: pathlib.Path) -> None:
    egress = "if (hdr.h.a == 9) { mark_to_drop(standard); } truncate(3);"
    subject = switch(tmp_path, egress=egress, **TWO)
    assert through(subject, bytes([1, 2, 3, 4])) == bytes([1, 2, 3])
    assert subject.process(bytes([9, 2, 3, 4]), 0, 0) == []


def test_multicast_copies_are_apart(tmp_path: pathlib.Path) -> None:
    egress = "hdr.h.a = hdr.h.a + (bit<8>)standard.egress_rid; hdr.h.b = (bit<8>)standard.egress_port;"
    subject = switch(tmp_path, apply="standard.mcast_grp = 7;", egress=egress, **TWO)
    assert subject.process(bytes([1, 0]), 0, 0) == []  # no such group
    subject.multicast[7] = [(3, 10), (4, 20), (3, 30)]
    assert subject.process(bytes([1, 0]), 0, 0) == [(3, bytes([11, 3])), (4, bytes([21, 4])), (3, bytes([31, 3]))]


def test_drop_after_multicast_clears_the_group(tmp_path: pathlib.Path) -> None:
    subject = switch(tmp_path, apply="standard.mcast_grp = 7; mark_to_drop(standard);")
    subject.multicast[7] = [(3, 0)]
    assert subject.process(bytes(1), 0, 0) == []


def test_unset_egress_is_port_0(tmp_path: pathlib.Path) -> None:
    subject = switch(tmp_path, apply="standard.egress_spec = 0;")
    assert subject.process(bytes(1), 0, 0) == [(0, bytes(1))]


def test_a_group_set_after_the_drop_wins(tmp_path: pathlib.Path) -> None:
    subject = switch(tmp_path, apply="mark_to_drop(standard); standard.mcast_grp = 7;")
    subject.multicast[7] = [(3, 0)]
    assert subject.process(bytes(1), 0, 0) == [(3, bytes(1))]


def test_a_copy_stays_what_it_was(tmp_path: pathlib.Path) -> None:
    apply = """
    data_t d = hdr.h;
    hdr.h.a = 9;
    hdr.h.b = d.a;
    """
    assert run(tmp_path, apply) == bytes([9, 1])
