"""The test runner itself: results, errors, hangs, expected deaths."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest

from collectives.testing import RanksFailed, run_ranks


def shares(rank: int, world_size: int, base: int) -> tuple[int, int, int]:
    return rank, world_size, base * rank


def test_results_come_in_rank_order() -> None:
    assert run_ranks(shares, 3, 7, backend=None) == [(0, 3, 0), (1, 3, 7), (2, 3, 14)]


def fails_on_one(rank: int, world_size: int) -> None:
    if rank == 1:
        print("about to fail")
        raise LookupError("as planned")


def test_an_error_comes_with_its_traceback(capsys) -> None:
    with pytest.raises(RanksFailed, match="as planned") as caught:
        run_ranks(fails_on_one, 2, backend=None)
    assert "in fails_on_one" in str(caught.value)
    assert isinstance(caught.value.errors[1], LookupError)
    assert list(caught.value.errors) == [1]
    assert "about to fail" in capsys.readouterr().out


def sleeps(rank: int, world_size: int) -> None:
    if rank == 1:
        time.sleep(60)


def test_a_rank_that_hangs_is_killed_and_its_stacks_are_shown() -> None:
    began_s = time.monotonic()
    with pytest.raises(RanksFailed, match=r"rank 1 of 2: not done after 1 s") as caught:
        run_ranks(sleeps, 2, backend=None, timeout=1)
    assert "in sleeps" in str(caught.value)
    assert time.monotonic() - began_s < 10


def dies(rank: int, world_size: int) -> str:
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_deaths_must_be_expected() -> None:
    with pytest.raises(RanksFailed, match="rank 0 of 2: killed by SIGKILL"):
        run_ranks(dies, 2, backend=None)
    assert run_ranks(dies, 2, backend=None, expect_killed={0}) == [None, "alive"]
    with pytest.raises(RanksFailed, match="ended by itself, though it should have been killed"):
        run_ranks(shares, 2, 1, backend=None, expect_killed={0})


def exits(rank: int, world_size: int) -> None:
    os._exit(3)


def test_an_exit_without_a_result_is_an_error() -> None:
    with pytest.raises(RanksFailed, match="ended with status 3 without a result"):
        run_ranks(exits, 1, backend=None)


def bad_exit(rank: int, world_size: int) -> None:
    import atexit

    atexit.register(os._exit, 5)


def test_a_bad_exit_after_the_result_is_an_error() -> None:
    with pytest.raises(RanksFailed, match="ended with status 5 after it returned"):
        run_ranks(bad_exit, 1, backend=None)


def reads_environment(rank: int, world_size: int) -> str | None:
    return os.environ.get("SOME_VARIABLE")


def test_the_environment_is_of_one_run() -> None:
    assert run_ranks(reads_environment, 1, backend=None, env={"SOME_VARIABLE": "x"}) == ["x"]
    assert run_ranks(reads_environment, 1, backend=None) == [None]


def test_functions_that_cannot_be_found_are_refused() -> None:
    with pytest.raises(ValueError, match="not a lambda"):
        run_ranks(lambda rank, world_size: None, 1, backend=None)


def reduces(rank: int, world_size: int) -> float:
    import torch
    import torch.distributed as dist

    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert dist.get_backend() == dist.get_backend_config().split(":")[-1]
    return float(tensor[0])


@pytest.mark.parametrize("backend", ["gloo", "collectives"])
def test_a_process_group_is_made_and_destroyed(backend: str) -> None:
    assert run_ranks(reduces, 2, backend=backend) == [2.0, 2.0]


def leaves_a_child(rank: int, world_size: int) -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    return pid


def test_what_a_rank_started_ends_with_it() -> None:
    (pid,) = run_ranks(leaves_a_child, 1, backend=None)
    deadline_s = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline_s:
        time.sleep(0.02)
    status = pathlib.Path(f"/proc/{pid}/status")
    assert not status.exists() or "Z (zombie)" in status.read_text(encoding="utf-8")
