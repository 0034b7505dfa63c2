"""Programs for the Tofino Native Architecture: checked, and refused where they are wrong; they do not run."""

from __future__ import annotations

import pathlib

import pytest

from collectives import p4
from tests.p4.harness import PROGRAMS

SOURCE = (PROGRAMS / "tna_adder.p4").read_text()


def test_check_says_which_architecture_it_is() -> None:
    assert p4.check(PROGRAMS / "tna_adder.p4") == "tna"
    assert p4.check(PROGRAMS / "adder.p4", defines={"LANES": 4}) == "v1model"


def test_it_does_not_run() -> None:
    with pytest.raises(p4.P4Error, match=r"tna_adder\.p4:\d+:14: Switch is not v1model's switch"):
        p4.load(PROGRAMS / "tna_adder.p4")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "void apply(inout bit<8> cell) {",
            "void apply(in bit<8> cell) {",
            r"apply of RegisterAction<bit<8>, bit<16>, bit<8>> is void apply\(inout bit<8>, out bit<8>\)",
        ),
        (
            "mark.execute(hdr.add.slot)",
            "mark.execute(8w1)",
            "parameter index of execute needs bit<16>, and this is bit<8>",
        ),
        ("meta.seen = mark.execute", "meta.sum = mark.execute", "the assignment needs bit<32>, and this is bit<8>"),
        ("void apply(inout bit<8> cell, out", "void run(inout bit<8> cell, out", "is made with the functions apply"),
        (
            "Register<bit<8>, index_t>(1024, 0)",
            "Register<bit<16>, index_t>(1024, 0)",
            "parameter register_ of RegisterAction needs Register<bit<8>, bit<16>>, and this is",
        ),
        (
            "for_tm.mcast_grp_a = group",
            "for_tm.mcast_grp_c = group",
            "no field mcast_grp_c; did you mean mcast_grp_b",
        ),
        ("    AddIngress(),\n", "    AddEgress(),\n", "control AddEgress has the parameters"),
        (
            "    AddEgressDeparser()) pipe",
            "    AddIngressDeparser()) pipe",
            "control AddIngressDeparser has",
        ),
        ("fold.get({", "fold.put({", r"Hash<bit<16>> has no method put; it has get"),
        ("Switch(pipe) main", "Switch(pipes) main", "pipes is not declared before this line; did you mean pipe"),
        ("dice.get()", "dice.get(1)", "get takes 0 arguments, and this gives 1"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: pathlib.Path, old: str, new: str, message: str) -> None:
    assert SOURCE.count(old) == 1
    path = tmp_path / "test.p4"
    path.write_text(SOURCE.replace(old, new))
    with pytest.raises(p4.P4Error, match=message):
        p4.check(path)
