"""Figures, verdicts, exit status, table and picture, on recorded steps that are made up here."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import matplotlib.image
import movielens
import numpy as np
import pytest
from clickmodel import report, results, synthetic
from clickmodel.launch import RankFailed
from clickmodel.worker import Job

STEPS = 40


def made_up(label: str = "gloo", comm_us: float = 400.0, auc: float = 0.78) -> results.Figures:
    """Return two ranks' figures whose loss does not depend on the label."""
    rng = np.random.default_rng(1)
    return results.Figures(
        label=label,
        backend=label.split(" ")[0],
        loss=0.5 + 0.1 * rng.random((2, STEPS)),
        step_ns=3e6 + 1e5 * rng.random(STEPS),
        comm_ns=1e3 * comm_us * (1 + 0.1 * rng.random(STEPS)),
        auc=np.array([0.7, auc]),
        digests=("a", "a"),
        warm_up=10,
    )


def test_all_well() -> None:
    assert results.failures([made_up(), made_up("collectives", 40)], 0.77) == []
    # Alone, or against itself, there is no communication to compare.
    assert results.failures([made_up("collectives", 4000)], 0.77) == []
    assert results.failures([made_up(), made_up("gloo #2", 4000)], 0.77) == []


def test_each_failure_is_named() -> None:
    good, slow = made_up(), made_up("collectives", 100)
    assert results.failures([good, slow], 0.77) == [
        f"communication of collectives takes 0.25 of gloo's time ({slow.comm_median_ns / 1e3:.0f} us of "
        f"{good.comm_median_ns / 1e3:.0f} us); at most 0.20 is allowed"
    ]
    ours = made_up("collectives", 40)
    worse = dataclasses.replace(ours, auc=np.array([0.78, 0.7699]))
    assert results.failures([good, worse], 0.77) == ["held-out AUC of collectives is 0.7699, below 0.7700"]
    loss = ours.loss.copy()
    loss[1, 7] *= 1 + 5e-6
    other = dataclasses.replace(ours, loss=loss)
    assert results.failures([good, other], 0.77) == [
        "losses differ: collectives from gloo by up to 5.0e-06 (at most 1e-06)"
    ]
    torn = dataclasses.replace(ours, digests=("a", "b"))
    assert "ranks' weights differ at the end of collectives" in results.failures([good, torn], 0.77)[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_differs(value: float) -> None:
    bad = dataclasses.replace(made_up("collectives", 40), loss=np.full((2, STEPS), value))
    assert "losses differ: collectives" in results.failures([made_up(), bad], 0.77)[0]
    assert "losses differ" in results.failures([dataclasses.replace(bad, backend="gloo")], 0.77)[0]


def test_gloo_is_the_baseline_wherever_it_stands() -> None:
    pair = [made_up("collectives", 100), made_up()]
    assert results.baseline_of(pair) is pair[1]
    assert len(results.failures(pair, 0.77)) == 1


def test_labels_are_unique() -> None:
    assert results.make_labels(("gloo", "collectives", "gloo", "gloo")) == ["gloo", "collectives", "gloo #2", "gloo #3"]


def save_ranks(folder: Path, figures: list[results.Figures]) -> None:
    """Write what two ranks would: rank 1 comes late to every other step, so rank 0 waits there."""
    for rank in range(2):
        arrays: dict[str, np.ndarray] = {}
        for index, entry in enumerate(figures):
            waits = np.where(np.arange(STEPS) % 2 == rank, 5_000_000, 0)
            arrays[f"loss_{index}"] = entry.loss[rank]
            arrays[f"step_ns_{index}"] = (entry.step_ns - rank).astype(np.int64)
            arrays[f"comm_ns_{index}"] = entry.comm_ns.astype(np.int64) + waits
            arrays[f"auc_{index}"] = entry.auc
            arrays[f"digest_{index}"] = np.array(entry.digests[rank])
        np.savez(folder / f"rank{rank}.npz", **arrays)  # type: ignore[arg-type]


def test_waiting_for_a_late_rank_is_not_communication(tmp_path: Path) -> None:
    pair = [made_up(), made_up("collectives", 40)]
    save_ranks(tmp_path, pair)
    loaded = results.load(tmp_path, ("gloo", "collectives"), ranks=2, warm_up=10)
    for entry, expected in zip(loaded, pair, strict=True):
        np.testing.assert_array_equal(entry.comm_ns, np.floor(expected.comm_ns))
        np.testing.assert_array_equal(entry.step_ns, np.floor(expected.step_ns))  # the slowest rank's
        np.testing.assert_array_equal(entry.loss, expected.loss)
    assert loaded[1].comm_median_ns == np.median(loaded[1].comm_ns[10:])


@pytest.mark.parametrize("with_rich", [True, False])
def test_table(with_rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    else:
        pytest.importorskip("rich")
    text = report.table([made_up(), made_up("collectives", 40)])
    for expected in ("backend", "communication", "test AUC", "gloo / collectives", "10.0x", "bit-equal", "0.7800"):
        assert expected in text
    assert "…" not in text  # nothing is cut


@pytest.mark.parametrize("labels", [["gloo"], ["gloo", "collectives"], ["gloo", "collectives", "gloo #2"]])
def test_picture(labels: list[str], tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "p.png"
    report.draw([made_up(label, 400.0 if label != "collectives" else 40.0) for label in labels], "Title", "sub", path)
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[:2] == (650, 1820)
    assert pixels.std() > 0.02  # something is drawn


def test_labels_beside_the_medians_do_not_overlap() -> None:
    assert report._spread([0.5, 0.45, 0.9], gap=0.2) == pytest.approx([0.65, 0.45, 0.9])


def run_main(monkeypatch: pytest.MonkeyPatch, out: Path, figures: list[results.Figures], *arguments: str) -> int:
    """Run the entry point with ranks that only leave these figures."""
    monkeypatch.setattr(movielens, "run_job", lambda job, labels: save_ranks(job.run_dir, figures))
    monkeypatch.setattr(movielens.importlib.util, "find_spec", lambda name: object())
    generated = synthetic.generate(1, impressions=300, users=20, items=30)
    monkeypatch.setattr(synthetic, "generate", lambda seed: dataclasses.replace(generated, auc_bound=0.77))
    return movielens.main(["--synthetic", "--out", str(out), *arguments])


def test_exit_status_is_0_when_all_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, tmp_path, [made_up(), made_up("collectives", 40)]) == 0
    out = capsys.readouterr().out
    assert f"picture: {tmp_path / 'movielens.png'}" in out
    assert "all well: losses equal, AUC at least 0.77, communication within 0.2 of gloo's" in out
    assert (tmp_path / "movielens.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("comm_us", "auc", "message"),
    [(100, 0.78, "FAILED: communication of collectives takes 0.25"), (40, 0.5, "FAILED: held-out AUC of collectives")],
)
def test_exit_status_is_1_when_not(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    comm_us: float,
    auc: float,
    message: str,
) -> None:
    assert run_main(monkeypatch, tmp_path, [made_up(), made_up("collectives", comm_us, auc)]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert "all well" not in captured.out


def test_exit_status_is_3_when_a_rank_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(job: Job, labels: list[str]) -> None:
        raise RankFailed("rank 1 of 2 failed\nsome traceback")

    monkeypatch.setattr(movielens, "run_job", fail)
    assert movielens.main(["--synthetic", "--quick", "--backends", "gloo", "--out", str(tmp_path)]) == 3
    assert "error: rank 1 of 2 failed\nsome traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "must be 1 or more"),
        (["--ranks", "0"], "must be 1 or more"),
        (["--seed", "-1"], "must not be negative"),
        (["--backends", " , "], "names none"),
        (["--backends", "gloo,carrier_pigeon"], "torch has no backend carrier_pigeon"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        movielens.main(["--backends", "gloo", *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_says_how_to_install_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(movielens.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        movielens.main([])
    assert "collectives package is not installed" in capsys.readouterr().err


def test_without_an_index_it_says_so_and_generates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable() -> None:
        raise movielens.movielens.IndexUnreachable("pip said no")

    monkeypatch.setattr(movielens.movielens, "load_movielens", unreachable)
    loaded = movielens.load_data(movielens.parse_args(["--backends", "gloo"]))
    assert loaded.name == "seeded generator"
    assert "no package index can be reached (pip said no)" in capsys.readouterr().out


def test_wrong_data_is_an_error_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> None:
        raise movielens.movielens.DataError("has SHA-256 x, expected y")

    monkeypatch.setattr(movielens.movielens, "load_movielens", wrong)
    assert movielens.main(["--backends", "gloo"]) == 1
    assert "error: has SHA-256 x, expected y" in capsys.readouterr().err
