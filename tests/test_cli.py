"""The ``collectives`` command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import collectives
from collectives import cli


def test_info_as_json(capsys) -> None:
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["collectives"] == collectives.__version__
    assert facts["torch"]["compiled against"].partition("+")[0] == facts["torch"]["installed"].partition("+")[0]
    assert facts["transports"] == ["shm"]
    assert facts["simd"]["used"] in facts["simd"]["possible"]
    assert facts["dtypes"]["bfloat16"] == {"bytes": 2, "ops": ["sum", "avg", "product", "min", "max", "premul_sum"]}
    assert "avg" not in facts["dtypes"]["int32"]["ops"]
    assert len(facts["dtypes"]) == 17


def test_info_for_people(capsys) -> None:
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert f"collectives  {collectives.__version__}" in text
    header = next(line for line in text.splitlines() if line.startswith("dtype "))
    assert header.split() == ["dtype", "bytes", "sum", "product", "min", "max", "band", "bor", "bxor", "avg",
                              "premul_sum"]  # fmt: skip
    row = next(line for line in text.splitlines() if line.startswith("complex64"))
    assert row.split() == ["complex64", "8", "yes", "yes", "-", "-", "-", "-", "-", "yes", "yes"]


def test_wrong_arguments() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["info", "--what"])
    assert caught.value.code == 2


def test_bench_forwards_its_arguments(repository) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "collectives.cli", "bench", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=repository,
    )
    assert result.returncode == 0, result.stderr
    assert "--json" in result.stdout


def test_bench_says_where_it_is(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "collectives" / "cli.py"))
    assert cli.run_bench([]) == 2
    assert "comes with the source" in capsys.readouterr().err
