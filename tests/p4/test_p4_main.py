"""The command ``python -m collectives.p4``."""

from __future__ import annotations

import pathlib

import pytest

from collectives.p4.__main__ import main
from tests.p4.harness import PROGRAMS, source


def test_it_lists_what_a_program_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(PROGRAMS / "adder.p4"), "-D", "LANES=4"]) == 0
    out = capsys.readouterr().out
    assert "adder.p4: right, for v1model" in out
    assert "table AddIngress.jobs (standard.ingress_port: exact), 64 entries" in out
    assert "AddIngress.admit(bit<8> workers, bit<16> group)" in out
    assert "register AddIngress.pool.value_3, 256 of bit<32>" in out
    assert "value_4" not in out
    assert main([str(PROGRAMS / "counter.p4"), "--python"]) == 0
    assert "def parser(" in capsys.readouterr().out
    assert main([str(PROGRAMS / "tna_adder.p4")]) == 0
    assert "right, for tna" in capsys.readouterr().out


def test_it_says_what_is_wrong(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "test.p4"
    path.write_text("#ifdef WRONG\n#error so it is\n#endif\n" + source())
    assert main([str(path)]) == 0
    assert main([str(path), "-D", "WRONG"]) == 1
    assert capsys.readouterr().err == f"{path}:2:2: #error so it is\n"
    assert main(["nowhere.p4"]) == 1
    assert "nowhere.p4" in capsys.readouterr().err
