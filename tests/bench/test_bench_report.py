"""Result documents: schema, tables, bounds, merging, and the judging of targets."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from bench import comparison, report, targets


def rounds(*medians: float) -> list[dict[str, Any]]:
    return [
        {"round": i, "median_us": m, "p95_us": 2 * m, "back_to_back_us": m / 2, "iterations": 9}
        for i, m in enumerate(medians)
    ]


def document(ours: float = 2.0, theirs: float = 5.0, mode: str = "far", size_bytes: int = 64) -> dict[str, Any]:
    made = {
        "schema": report.SCHEMA,
        "machine": {
            "cpu": "A CPU", "cores": 2, "memory_gib": 24, "kernel": "Linux 6", "python": "3.11",
            "versions": {"torch": "2.13.0"},
        },
        "options": {"dtype": "float32"},
        "ranks": 2,
        "launcher": "mpirun",
        "peers": {
            "core": {"available": True, "version": "collectives 1"},
            "mpi": {"available": True, "version": "Open MPI v5"},
            "gloo": {"available": False, "reason": "torch is not installed"},
        },
        "modes": [{"round": 0, "round_trip_before_ns": 400, "round_trip_after_ns": 410, "mode": mode}],
        "probe": {"round_trip_ns": 400, "copy_gbps_a_core": {"64": 64, "67108864": 20}, "zero_copy_all_reduce_us": {}},
        "checks": {"idle_cpu_fraction": 0.0, "staging_bytes_a_rank": 1 << 20},
        "results": [
            report.result("all_reduce", size_bytes, "core", 2, rounds(ours)),
            report.result("all_reduce", size_bytes, "mpi", 2, rounds(theirs)),
        ],
    }  # fmt: skip
    report.add_comparisons(made)
    return made


def test_a_row_holds_medians_over_the_rounds() -> None:
    row = report.result("all_reduce", 4000, "core", 4, rounds(4, 2, 8))
    assert (row["median_us"], row["p95_us"], row["back_to_back_us"]) == (4, 8, 2)
    assert row["algbw_gbps"] == 1.0
    assert row["busbw_gbps"] == 1.5
    assert row["correct"]


def test_a_row_with_a_wrong_round_has_no_figures() -> None:
    row = report.result("all_reduce", 64, "core", 2, [*rounds(4), {"round": 1, "error": "wrong result", "wrong": 3}])
    assert not row["correct"]
    assert "median_us" not in row
    assert row["error"] == "wrong result"


def test_ratios_and_bounds() -> None:
    row = document()["results"][0]
    assert row["ratios"] == {"mpi": 2.5}
    assert row["bound_us"] == pytest.approx(0.2)  # half of the round trip, above 128 bytes at 64 GB/s
    probed = {"round_trip_ns": 400, "copy_gbps_a_core": {"67108864": 20}}
    assert report.bound_us("all_reduce", 64 << 20, 2, 2, probed) == pytest.approx(2 * 67108864 / 20e3)
    # 8 ranks on 2 cores: each core carries four ranks' bytes
    assert report.bound_us("all_reduce", 64 << 20, 8, 2, probed) == pytest.approx(4 * 2 * 67108864 / 20e3)
    assert report.bound_us("all_reduce", 1 << 20, 2, 2, probed) is None
    assert report.bound_us("barrier", 0, 2, 2, probed) == 0.2


def test_the_table_names_figures_and_absent_peers() -> None:
    text = report.table(document())
    lines = text.splitlines()
    header = next(line for line in lines if "median us" in line).split()
    core = next(line for line in lines if " core " in line and "all_reduce" in line).split()
    assert header[-4:] == ["vs", "core", "vs", "mpi"]
    assert core[:5] == ["all_reduce", "64", "B", "core", "2.00"]
    assert core[-2:] == ["-", "2.50"]
    assert "gloo: not available: torch is not installed" in lines
    assert "A CPU, 2 cores" in text
    assert "cores far" in text


def test_a_machine_that_was_not_quiet_is_named() -> None:
    made = document()
    assert "NOT QUIET" not in report.table(made)
    made["modes"][0]["others_busy"] = 0.42
    assert "NOT QUIET: other programs used up to 42 % of the CPU" in report.table(made)
    compared = merged()
    compared["samples"] = comparison.samples_of(made, "openmpi", 0)
    assert "42 % in the worst" in comparison.markdown(compared)


def test_the_table_shows_wrong_results_instead_of_figures() -> None:
    made = document()
    made["results"][0] = report.result(
        "all_reduce", 64, "core", 2, [{"round": 0, "error": "wrong result: 1", "wrong": 1}]
    )
    report.add_comparisons(made)
    line = next(line for line in report.table(made).splitlines() if " core " in line and "all_reduce" in line)
    assert line.split("core")[1].strip() == "WRONG: wrong result: 1"
    assert report.wrong_rows(made) == [made["results"][0]]
    assert made["results"][1]["ratios"] == {}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.pop("results"), "results is missing"),
        (lambda d: d.update(schema="other/1"), "schema is 'other/1'"),
        (lambda d: d.update(ranks="2"), "ranks is no int"),
        (lambda d: d["results"][0].pop("median_us"), "results\\[0\\] has neither median_us nor error"),
        (lambda d: d["results"][1].pop("correct"), "results\\[1\\].correct is missing"),
        (lambda d: d["peers"]["gloo"].pop("reason"), "peers.gloo is not available but gives no reason"),
    ],
)
def test_documents_are_validated(spoil: Any, message: str) -> None:
    made = document()
    report.validate(made)
    spoil(made)
    with pytest.raises(ValueError, match=message):
        report.validate(made)


def samples(
    ours: float, theirs: dict[str, list[float]], size_bytes: int = 64, mode: str = "far", subject: str = "core"
) -> list[dict[str, Any]]:
    """Samples of all_reduce on 2 ranks: `subject` at `ours` beside each MPI's times, one a round."""
    made = []
    for launch, times in theirs.items():
        for index, time_us in enumerate(times):
            run = document(ours, time_us, mode, size_bytes)
            made += comparison.samples_of(run, launch, index)
    for sample in made:
        sample["times"][subject] = sample["times"].pop("core")
    return made


def verdict(name: str, made: list[dict[str, Any]], mpi: list[str]) -> targets.Verdict:
    return next(v for v in targets.verdicts(made, mpi) if v.target.name == name)


def test_the_best_mpi_is_the_hardest_to_beat() -> None:
    made = samples(2.0, {"openmpi": [4, 40, 4], "impi": [3, 3.1, 1], "mpich": [9, 9, 9]})
    assert targets.best_mpi(made, "core", ["openmpi", "impi", "mpich"]) == (1.5, "impi", 3)
    row = comparison.merge(made, ["openmpi", "impi", "mpich"])[0]
    assert (row["best"], row["best_us"], row["ratio"], row["subject_us"], row["rounds"]) == ("impi", 3, 1.5, 2.0, 3)
    assert row["mpi_us"] == {"openmpi": 4, "impi": 3, "mpich": 9}
    assert row["verdict"] == "pass (1.5)"


@pytest.mark.parametrize(("theirs", "status"), [(3.0, "pass"), (2.98, "fail")])
def test_small_messages_need_one_and_a_half(theirs: float, status: str) -> None:
    made = samples(2.0, {"openmpi": [theirs]})
    assert verdict("core-small", made, ["openmpi"]).status == status
    assert verdict("core-no-slower", made, ["openmpi"]).status == "pass"


@pytest.mark.parametrize(("theirs", "status"), [(1.94, "pass"), (1.93, "fail")])
def test_no_slower_is_a_ratio_of_0_97(theirs: float, status: str) -> None:
    made = samples(2.0, {"openmpi": [theirs]}, size_bytes=32768)
    assert verdict("core-no-slower", made, ["openmpi"]).status == status


def test_a_missing_mpi_is_not_a_pass() -> None:
    made = samples(2.0, {"openmpi": [9.0]})
    judged = verdict("core-small", made, ["openmpi", "mpich"])
    assert judged.status == "not measured"
    assert "mpich" in judged.cells[0].reason


def test_a_figure_that_is_missing_names_the_reason() -> None:
    made = samples(2.0, {"openmpi": [9.0]})
    del made[0]["times"]["core"]
    made[0]["errors"]["core"] = "no such operation"
    judged = verdict("core-small", made, ["openmpi"])
    assert judged.status == "not measured"
    assert judged.cells[0].reason == "core beside openmpi: no such operation"


def test_modes_are_judged_apart() -> None:
    mixed = samples(2.0, {"openmpi": [9.0]}, 2 << 20, "far") + samples(2.0, {"openmpi": [1.0]}, 2 << 20, "near")
    assert verdict("core-middle-far", mixed, ["openmpi"]).status == "pass"
    judged = verdict("core-no-slower", mixed, ["openmpi"])
    assert judged.status == "fail"
    assert judged.worst is not None
    assert judged.worst.mode == "near"
    changed = samples(2.0, {"openmpi": [1.0]}, 2 << 20, "changed")
    assert verdict("core-no-slower", changed, ["openmpi"]).status == "not measured"


def test_torch_and_zero_copy_targets() -> None:
    base = samples(1.0, {"torch": [9.0]}, 64, subject="collectives")
    base[0]["times"] |= {"gloo": 29.0, "core": 0.5, "core_zero_copy": 0.6}
    assert verdict("torch-small", base, []).status == "fail"
    base[0]["times"]["gloo"] = 30.0
    assert verdict("torch-small", base, []).status == "pass"
    assert verdict("torch-call", base, []).status == "pass"
    base[0]["times"]["core"] = -4.1
    assert verdict("torch-call", base, []).status == "fail"
    assert verdict("zero-copy-staged", base, []).status == "fail"
    large = samples(1.0, {"torch": [9.0]}, 64 << 20, subject="core_zero_copy")
    assert verdict("zero-copy-bound", large, []).status == "not measured"
    large[0]["zero_copy_bound_us"] = 0.8
    assert verdict("zero-copy-bound", large, []).status == "pass"
    large[0]["zero_copy_bound_us"] = 1.2
    disturbed = verdict("zero-copy-bound", large, [])
    assert disturbed.status == "not measured"
    assert "disturbed" in disturbed.cells[0].reason
    large[0]["zero_copy_bound_us"] = 0.79
    assert verdict("zero-copy-bound", large, []).status == "fail"
    other = {**large[0], "times": {}, "zero_copy_bound_us": 0.9}  # of another launch, which was given slower memory
    assert verdict("zero-copy-bound", [*large, other], []).status == "fail"
    large[0]["zero_copy_bound_us"], other["zero_copy_bound_us"] = 1.2, 0.9
    assert verdict("zero-copy-bound", [*large, other], []).status == "pass"


def test_limits_take_the_worst_launch() -> None:
    checks = [{"staging_bytes_a_rank": 1 << 20, "idle_cpu_fraction": 0.0}, {"staging_bytes_a_rank": 5 << 20}]
    staging = next(limit for limit in targets.LIMITS if limit.check == "staging_bytes_a_rank")
    assert staging.worst(checks) == 5 << 20
    assert staging.worst([{}]) is None


def merged() -> dict[str, Any]:
    return {
        "schema": comparison.SCHEMA,
        "machine": document()["machine"],
        "launches": ["openmpi", "torch"],
        "mpi": ["openmpi"],
        "rounds": 1,
        "samples": samples(2.0, {"openmpi": [9.0], "torch": [9.0]}),
        "checks": [{"staging_bytes_a_rank": 5 << 20, "idle_cpu_fraction": 0.0}],
        "failures": [{"round": 0, "launch": "mpich", "ranks": 8, "error": "status 1: no slots"}],
    }


def test_markdown_holds_targets_figures_and_failures() -> None:
    text = comparison.markdown(merged())
    assert "| all_reduce | 64 B | far | 1 | 2.00 | 9.00 | openmpi | 4.50 | pass (1.5) | 0.20 |" in text
    assert "- round 0, mpich, 8 ranks: status 1: no slots" in text
    assert "- gloo: torch is not installed" in text
    assert "never near in this run" in text
    assert "| shared staging memory of the core, MiB a rank | at most 4 | 5.00 | fail |" in text
    small = next(line for line in text.splitlines() if "up to 1 KiB" in line)
    assert "| at least 1.5 | 4.50 (all_reduce 64 B, 2 ranks, far, against openmpi) | pass, 1 of 1 cells |" in small
    tables = [line for line in text.splitlines() if line.startswith("|")]
    for line, following in itertools.pairwise(tables):
        if set(following) <= set("| -"):
            assert line.count("|") == following.count("|")


def test_comparisons_are_validated() -> None:
    comparison.validate(merged())
    lacking = merged()
    del lacking["checks"]
    with pytest.raises(ValueError, match="lacks checks"):
        comparison.validate(lacking)
    with pytest.raises(ValueError, match="no document of schema"):
        comparison.validate(document())


def test_a_compared_launch_holds_one_round() -> None:
    made = document()
    made["modes"] *= 2
    with pytest.raises(ValueError, match="one round, not 2"):
        comparison.samples_of(made, "openmpi", 0)


def test_samples_carry_errors_of_rows_and_absent_peers() -> None:
    made = copy.deepcopy(document())
    made["results"][1] = report.result(
        "all_reduce", 64, "mpi", 2, [{"round": 0, "error": "wrong result: 1", "wrong": 1}]
    )
    sample = comparison.samples_of(made, "openmpi", 4)[0]
    assert sample["errors"] == {"gloo": "torch is not installed", "mpi": "wrong result: 1"}
    assert (sample["round"], sample["mode"], sample["times"]) == (4, "far", {"core": 2.0})


@pytest.mark.parametrize(("size", "text"), [(8, "8 B"), (32768, "32 KiB"), (64 << 20, "64 MiB"), (1000, "1000 B")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert report.size_text(size) == text


@pytest.mark.parametrize(("time_us", "text"), [(0.813, "0.81"), (99.99, "99.99"), (1234.5, "1,234"), (None, "-")])
def test_times_for_people(time_us: float | None, text: str) -> None:
    assert report.time_text(time_us) == text
