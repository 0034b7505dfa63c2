"""The job with real ranks: trains, both backends agree bit for bit, and a rank that fails is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import movielens
import numpy as np
import pytest
from clickmodel import worker
from clickmodel.launch import RankFailed, run_job
from clickmodel.worker import Job


def make_job(folder: Path, **changes: object) -> Job:
    """Return a job of two ranks on gloo."""
    fields: dict[str, object] = {
        "backends": ("gloo",),
        "ranks": 2,
        "epochs": 1,
        "seed": 1,
        "data_path": folder / "data.npz",
        "run_dir": folder,
    }
    return Job(**(fields | changes))  # type: ignore[arg-type]


def test_trains_and_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # How fast is for the benchmark to say: on a busy machine a time proves nothing.
    status = movielens.main(["--synthetic", "--quick", "--max-comm-share", "1e9", "--out", str(tmp_path)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert "bit-equal" in captured.out
    assert "collectives: epoch 1, step 125/125, loss " in captured.err
    assert (tmp_path / "movielens.png").exists()


def raise_on_rank_1(rank: int, job: Job, progress: Connection) -> None:
    if rank == 1:
        raise ValueError("the second rank fell over")
    time.sleep(60)


def kill_rank_1(rank: int, job: Job, progress: Connection) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@pytest.mark.parametrize(
    ("target", "message"), [(raise_on_rank_1, "the second rank fell over"), (kill_rank_1, "SIGKILL")]
)
def test_a_failing_rank_ends_the_run(tmp_path: Path, target: object, message: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(RankFailed, match=f"(?s)rank 1 of 2 failed.*{message}"):
        run_job(make_job(tmp_path), ["gloo"], target)  # type: ignore[arg-type]
    assert time.monotonic() - started_s < 50  # rank 0 was not waited for


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_gets_its_own_part_of_every_batch(tmp_path: Path, ranks: int) -> None:
    train = np.arange(1000, 1530)
    job = make_job(tmp_path, ranks=ranks, epochs=2, batch=60, round_steps=5)
    parts = [list(worker._turns(job, rank, train)) for rank in range(ranks)]
    assert [(epoch, len(turn)) for epoch, turn in parts[0]] == [(0, 5), (0, 3), (1, 5), (1, 3)]
    orders = []
    for epoch in range(2):
        seen = [step for part in parts for number, turn in part if number == epoch for step in turn]
        together = np.concatenate(seen)
        assert together.size == np.unique(together).size == 480  # the last 50 fill no batch
        assert {step.size for step in seen} == {60 // ranks}
        orders.append(together)
    assert not np.array_equal(orders[0], orders[1])


def test_turns_flip() -> None:
    assert [worker._order(2, turn) for turn in range(3)] == [[0, 1], [1, 0], [0, 1]]


def test_the_script_to_copy() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(Path(movielens.__file__).parent / "ddp_all_reduce.py")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "collectives, 2 ranks, step 60: loss 0.0" in done.stdout
    assert "weights: [1.0" in done.stdout or "weights: [0.99" in done.stdout
