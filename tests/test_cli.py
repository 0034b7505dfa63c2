"""The ``collectives`` command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pytest

import collectives
from collectives import cli


def table_of_transports(repository) -> list[str]:
    """The rows of the C++ table that reach other processes by themselves."""
    source = (repository / "csrc/transport/transports.cc").read_text(encoding="utf-8")
    rows = re.findall(r'^ +\{"(\w+)", (true|false), (?:true|false), (true|false),', source, re.MULTILINE)
    assert {"shm", "inproc", "faulty"} <= {name for name, _, _ in rows}
    return [name for name, between_processes, wraps in rows if (between_processes, wraps) == ("true", "false")]


def test_info_as_json(capsys, repository) -> None:
    assert cli.main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["collectives"] == collectives.__version__
    assert facts["torch"]["compiled against"].partition("+")[0] == facts["torch"]["installed"].partition("+")[0]
    assert facts["transports"] == table_of_transports(repository)
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


def plan(capsys, *arguments: str) -> list[str]:
    assert cli.main(["info", "--plan", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def starred(lines: list[str]) -> list[str]:
    return [line.split()[1].rstrip(":") for line in lines if line.startswith("  * ")]


def test_plan_of_a_large_call(capsys) -> None:
    lines = plan(capsys, "all_reduce", "4MiB")
    assert lines[0] == "all_reduce of float32[1048576], sum, 2 ranks:"
    assert "all_reduce_mapped" in starred(lines)
    assert set(starred(lines)) - {"all_reduce_pulled"} == {"all_reduce_mapped", "all_reduce_two_shot"}
    assert lines[-1].startswith("transport shm (")


def test_plan_of_a_small_call(capsys) -> None:
    lines = plan(capsys, "all_gather", "96", "--ranks", "3", "--dtype", "float64")
    assert lines[0] == "all_gather of float64[4], 3 ranks:"
    assert starred(lines) == ["all_gather_inline"]


def test_plan_as_json(capsys) -> None:
    assert cli.main(["info", "--plan", "barrier", "0", "--ranks", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "group": "one rank: there is nothing to move",
        "plan": "barrier, 1 rank:\n  a copy",
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["all_sort", "4MiB"], "no collective is named 'all_sort'; there are all_reduce, "),
        (["all_reduce", "4 megs"], "expected a size in bytes, such as 4194304 or 4MiB"),
        (["all_gather", "97", "--ranks", "3"], "3 blocks of whole elements of 4 bytes: take a multiple of 12 bytes"),
        (["all_reduce", "4", "--ranks", "65"], "--ranks: 65 is not within 1 to 64"),
        (["all_reduce", "4", "--dtype", "float31"], "--dtype: none is named 'float31'; there are float64, "),
    ],
)
def test_plan_refuses_what_makes_no_sense(arguments: list[str], expected: str, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["info", "--plan", *arguments])
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("op", "expected"), [("mean", "op: 'mean' is no reduce operation"), ("band", "all_reduce: ")])
def test_plan_says_what_the_group_refuses(op: str, expected: str, capsys) -> None:
    assert cli.main(["info", "--plan", "all_reduce", "4MiB", "--op", op]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"collectives info --plan: {expected}")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [["info", "--json"], ["info"], ["info", "--plan", "all_reduce", "4MiB"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "collectives.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    command.stdout.close()  # as `| head -0` does, long before the first line is there
    assert (command.stderr.read(), command.wait(60)) == ("", 128 + signal.SIGPIPE)


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
