"""The benchmark itself: real ranks under torchrun and mpirun, and compare.py over them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import conftest
import pytest

from bench import compare, comparison, launchers, report

Runner = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ["-b", "8", "-e", "4K", "-f", "512", "--seconds", "0.005", "--rounds", "2"]


def read(path: pathlib.Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(path.read_text())
    report.validate(made)
    return made


@pytest.mark.needs("torch")
def test_two_ranks_of_gloo(torchrun: Runner, tmp_path: pathlib.Path) -> None:
    done = torchrun("--peers", "gloo,mpi", *QUICK, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    made = read(tmp_path / "out.json")
    assert (made["ranks"], made["launcher"], len(made["modes"])) == (2, "torchrun", 2)
    assert made["peers"]["gloo"]["available"]
    assert "not by mpirun" in made["peers"]["mpi"]["reason"]
    assert {row["op"] for row in made["results"]} == {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier",
    }  # fmt: skip
    assert all(row["correct"] and row["median_us"] > 0 and len(row["rounds"]) == 2 for row in made["results"])
    assert "mpi: not available: the ranks were started by torchrun" in done.stdout
    assert "busbw" in done.stdout


@pytest.mark.needs("torch")
def test_a_peer_that_is_wrong_on_one_rank_is_caught(torchrun: Runner, tmp_path: pathlib.Path) -> None:
    done = torchrun(
        "--peers", "gloo,bench_fakes:Wrong,bench_fakes:OneRankAbsent", *QUICK, "--ops", "all_reduce,all_gather",
        "--no-probe", "--json", str(tmp_path / "out.json"),
    )  # fmt: skip
    assert done.returncode != 0
    made = read(tmp_path / "out.json")
    rows = {(row["op"], row["bytes"], row["peer"]): row for row in made["results"]}
    assert rows["all_reduce", 4096, "wrong"]["error"] == "wrong result: 1 of 1024 elements on rank 1"
    assert not rows["all_reduce", 4096, "wrong"]["correct"]
    assert "median_us" not in rows["all_reduce", 4096, "wrong"]
    assert rows["all_gather", 4096, "wrong"]["correct"]
    assert rows["all_reduce", 4096, "gloo"]["correct"]
    assert made["peers"]["one_rank_absent"]["reason"] == "on rank 1 alone: its library is missing"
    assert made["modes"][0]["mode"] == "unknown"
    assert "WRONG: wrong all_reduce 4096 B" in done.stderr
    assert "WRONG: wrong result: 1 of 1024 elements on rank 1" in done.stdout


def test_two_ranks_of_mpi(mpirun: Runner, tmp_path: pathlib.Path) -> None:
    done = mpirun("--peers", "mpi,gloo", *QUICK, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    made = read(tmp_path / "out.json")
    assert (made["ranks"], made["launcher"]) == (2, "mpirun")
    assert "Open MPI" in made["peers"]["mpi"]["version"]
    both = [row for row in made["results"] if row["op"] == "all_reduce"]
    assert {row["peer"] for row in both} == {"mpi", "gloo"}
    assert all(row["correct"] and row["ratios"] for row in both)


def test_alone_it_says_how_to_start() -> None:
    done = conftest._run([sys.executable, str(conftest.ROOT / "bench" / "run.py"), "--quick"], {})
    assert done.returncode == 2
    assert "torchrun --nproc-per-node 2 bench/run.py" in done.stderr


def test_compare_launches_in_turn_and_merges(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = launchers.implementation("openmpi")
    if not launchers.installed(row, launchers.default_root()):
        pytest.skip("needs an Open MPI that bench/compare.py has installed")
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    made, table = tmp_path / "compare.json", tmp_path / "compare.md"
    status = compare.main(
        ["--mpi", "openmpi", "--ranks", "2", "--rounds", "2", "-e", "512", "-f", "64", "--seconds", "0.005", "--ops",
         "all_reduce", "--json", str(made), "--markdown", str(table)]
    )  # fmt: skip
    assert status == 0, capsys.readouterr().err
    document = json.loads(made.read_text())
    comparison.validate(document)
    assert {(s["launch"], s["round"]) for s in document["samples"]} == {
        (launch, index) for launch in ("openmpi", "torch") for index in (0, 1)
    }
    assert all("mpi" in s["times"] for s in document["samples"] if s["launch"] == "openmpi")
    assert all("gloo" in s["times"] for s in document["samples"] if s["launch"] == "torch")
    rendered = table.read_text()
    assert "| all_reduce | 512 B |" in rendered
    assert compare.main(["--from", str(made), "--strict"]) == 3  # larger sizes were not measured: that is no pass
    assert capsys.readouterr().out.rstrip().endswith(rendered.rstrip())


def test_a_launch_that_fails_is_reported(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = compare.build_parser().parse_args(["--ranks", "2", "--rounds", "1"])
    program = [sys.executable, "-c", "import sys; sys.exit('no slots left')"]
    broken = compare.Launch("openmpi", "core", lambda ranks, pinned, arguments: (program, {}))
    said: list[str] = []
    document = compare.compare(options, [broken], said.append)
    assert document["failures"] == [{"round": 0, "launch": "openmpi", "ranks": 2, "error": "status 1: no slots left"}]
    assert "FAILED: status 1: no slots left" in said[0]
    assert "no slots left" in comparison.markdown(document)


def test_a_launch_that_hangs_is_ended() -> None:
    status, _ = compare._run_bounded([sys.executable, "-c", "import time; time.sleep(60)"], {}, 0.3)
    assert status == "over 0.3 s"


def test_wrong_results_fail_the_comparison() -> None:
    document = {"samples": [{"launch": "impi", "ranks": 2, "op": "all_reduce", "bytes": 8, "errors": {
        "core": "wrong result: 1 of 2 elements on rank 0", "gloo": "not here"}}]}  # fmt: skip
    assert compare.wrong_results(document) == [
        "impi, 2 ranks, all_reduce 8 B, core: wrong result: 1 of 2 elements on rank 0"
    ]


def test_every_mpi_has_a_command_of_its_own_prefix(tmp_path: pathlib.Path) -> None:
    prefixes = set()
    for row in launchers.IMPLEMENTATIONS:
        command, added = launchers.mpi_command(row, tmp_path, 2, True, ["run.py"])
        prefix = launchers.prefix_of(row, tmp_path)
        prefixes.add(prefix)
        assert command[0].startswith(str(prefix))
        assert added["MPI4PY_LIBMPI"].startswith(str(prefix))
        assert command[-4:] == ["-n", "2", sys.executable, "run.py"]
        assert not launchers.installed(row, tmp_path)
    assert len(prefixes) == len(launchers.IMPLEMENTATIONS)
    assert launchers.mpi_command(launchers.implementation("impi"), tmp_path, 8, False, [])[1]["I_MPI_PIN"] == "0"
    with pytest.raises(launchers.LauncherError, match="choose from openmpi, mpich, impi"):
        launchers.implementation("lam")


def test_a_launch_is_not_nested_in_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "RANK", "TORCHELASTIC_RUN_ID", "MPI4PY_LIBMPI"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("KEPT", "1")
    left = launchers.clean_environment()
    assert left["KEPT"] == "1"
    assert not {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "RANK", "TORCHELASTIC_RUN_ID", "MPI4PY_LIBMPI"} & left.keys()
