"""A rank that is killed, or stopped: every survivor raises in time and names it."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from fault_helpers import Raised, catch, die, die_soon, died_at

from collectives.testing import communicator, run_ranks

VICTIM = 1
DETECTION_S = 1.0  # the contract
SLACK_S = 0.5  # of a loaded machine, before a waiting process gets a core again


def before_an_operation(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        die(directory)
    died_s = died_at(directory)
    time.sleep(0.2)
    return catch(lambda: comm.all_reduce(np.ones(10))), died_s


def inside_a_wait(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        time.sleep(0.5)
        die(directory)
    raised = catch(lambda: comm.all_reduce(np.ones(10)))
    return raised, died_at(directory)


def inside_a_large_operation(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    array = np.ones(4_000_000)
    comm.barrier()
    if rank == VICTIM:
        die_soon(directory, 0.3)

    def work() -> None:
        for _ in range(100_000):
            comm.all_reduce(array, "max")

    raised = catch(work)
    return raised, died_at(directory)


def after_an_operation(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    comm.all_reduce(np.ones(10))
    if rank == VICTIM:
        die(directory)
    died_s = died_at(directory)
    comm_works_until_noticed = catch(lambda: [comm.barrier() for _ in range(1000)])
    return comm_works_until_noticed, died_s


def inside_an_asynchronous_operation(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        time.sleep(0.3)
        die(directory)
    request = comm.all_reduce(np.ones(100_000), async_op=True)
    while not request.done():
        time.sleep(0.01)
    assert request.exception() is not None
    raised = catch(request.wait)
    return raised, died_at(directory)


def inside_a_receive(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        time.sleep(0.3)
        die(directory)
    raised = catch(lambda: comm.recv(np.ones(10), VICTIM))
    return raised, died_at(directory)


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize(
    "scenario",
    [
        before_an_operation,
        inside_a_wait,
        inside_a_large_operation,
        after_an_operation,
        inside_an_asynchronous_operation,
        inside_a_receive,
    ],
)
def test_survivors_of_a_killed_rank_raise_within_a_second(scenario, world_size: int, tmp_path) -> None:
    results = run_ranks(scenario, world_size, str(tmp_path), backend=None, expect_killed={VICTIM}, timeout=40)
    for rank, result in enumerate(results):
        if rank == VICTIM:
            continue
        raised, died_s = result
        assert raised.kind == "PeerFailedError", f"rank {rank}: {raised}"
        assert f"rank {VICTIM}" in raised.text, raised.text
        started_s = max(died_s, raised.began_s)
        assert raised.ended_s - started_s < DETECTION_S + SLACK_S, f"rank {rank} took {raised.ended_s - started_s} s"


def repeats_the_first_error(rank: int, world_size: int, directory: str) -> list[str]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        die(directory)
    died_at(directory)
    first = catch(lambda: [comm.barrier() for _ in range(1000)])
    others = [
        catch(lambda: comm.all_reduce(np.ones(1))),
        catch(lambda: comm.recv(np.ones(1), 0)),
        catch(lambda: comm.all_reduce(np.ones(1), async_op=True).wait()),
    ]
    assert all(other.took_s < 0.5 for other in others)
    assert str(comm.exception()) == first.text
    comm.close()
    return [first.text, *(other.text for other in others)]


def test_later_calls_repeat_the_first_error(tmp_path) -> None:
    results = run_ranks(repeats_the_first_error, 3, str(tmp_path), backend=None, expect_killed={VICTIM}, timeout=40)
    for rank in (0, 2):
        assert len(set(results[rank])) == 1, results[rank]


def shrinks_and_goes_on(rank: int, world_size: int, directory: str) -> tuple[float, int]:
    comm = communicator()
    comm.barrier()
    if rank == VICTIM:
        die(directory)
    died_at(directory)
    catch(lambda: [comm.barrier() for _ in range(1000)])
    smaller = comm.shrink([VICTIM])
    total = smaller.all_reduce(np.full(3, float(rank)))
    smaller.close()
    return float(total[0]), smaller.world_size


def test_survivors_shrink_and_go_on(tmp_path) -> None:
    results = run_ranks(shrinks_and_goes_on, 4, str(tmp_path), backend=None, expect_killed={VICTIM}, timeout=40)
    assert [result for result in results if result is not None] == [(0.0 + 2.0 + 3.0, 3)] * 3


def stopped_peer(rank: int, world_size: int, directory: str, how: str) -> Raised | None:
    comm = communicator()
    pids = np.zeros(world_size, np.int64)
    comm.all_gather(pids, np.array([os.getpid()]))
    if rank == VICTIM:
        die(directory, signal.SIGSTOP)
        return None
    died_at(directory)
    if how == "all_reduce":
        raised = catch(lambda: comm.all_reduce(np.ones(10), timeout=1.0))
    elif how == "group timeout":
        comm.timeout = 1.0
        raised = catch(lambda: comm.barrier())
    elif how == "async":
        raised = catch(lambda: comm.all_reduce(np.ones(10), async_op=True, timeout=1.0).wait())
    else:
        raised = catch(lambda: comm.recv(np.ones(10), VICTIM, timeout=1.0))
    if rank == 0:
        time.sleep(1.0)  # the other survivors' deadlines, too
        os.kill(int(pids[VICTIM]), signal.SIGKILL)
    return raised


@pytest.mark.parametrize("how", ["all_reduce", "group timeout", "async", "recv"])
def test_a_stopped_rank_is_an_error_at_the_deadline(how: str, tmp_path) -> None:
    results = run_ranks(stopped_peer, 3, str(tmp_path), how, backend=None, expect_killed={VICTIM}, timeout=40)
    for rank in (0, 2):
        raised = results[rank]
        assert raised.kind == "CollectiveTimeoutError", raised
        assert f"rank {VICTIM} (" in raised.text or how == "recv", raised.text
        assert f"rank {VICTIM}" in raised.text, raised.text
        assert 0.5 < raised.took_s < 1.0 + SLACK_S + 0.5, raised


def one_is_sooner(rank: int, world_size: int, directory: str, how: str) -> Raised | None:
    """Rank 0 meets the deadline, the others hear of it."""
    comm = communicator(name="trio")
    pids = np.zeros(world_size, np.int64)
    comm.all_gather(pids, np.array([os.getpid()]))
    if rank == VICTIM:
        die(directory, signal.SIGSTOP)
        return None
    died_at(directory)
    timeout = 0.5 if rank == 0 else 15.0
    if how == "async":
        raised = catch(lambda: comm.all_reduce(np.ones(10), async_op=True).wait(timeout))
    elif how == "recv":
        raised = catch(lambda: comm.recv(np.ones(10), VICTIM, timeout=timeout))
    else:
        raised = catch(lambda: comm.all_reduce(np.ones(10), timeout=timeout))
    time.sleep(1.0)
    if rank == 0:
        os.kill(int(pids[VICTIM]), signal.SIGKILL)
    return raised


@pytest.mark.parametrize("how", ["all_reduce", "async", "recv"])
def test_what_was_heard_from_a_peer_is_said_once(how: str, tmp_path) -> None:
    results = run_ranks(one_is_sooner, 4, str(tmp_path), how, backend=None, expect_killed={VICTIM}, timeout=40)
    for rank in (0, 2, 3):
        raised = results[rank]
        assert raised.kind == "CollectiveTimeoutError", raised
        assert f"rank {VICTIM}" in raised.text, raised.text
        assert raised.text.count("of group 'trio'") == 1, raised.text
        assert raised.text.count(f"on rank {rank} (") == 1, raised.text
        what = "recv from rank" if how == "recv" else "all_reduce of float64[10], sum #2"
        assert raised.text.count(what) == 1, raised.text
    for rank in (2, 3):
        assert results[rank].text.count("rank 0 (") == 1, results[rank].text
        assert results[rank].text.count(" failed: ") == 1, results[rank].text
        assert results[rank].took_s < 2.0, results[rank]


def dies_under_torch(rank: int, world_size: int, directory: str) -> tuple[Raised, float]:
    import torch
    import torch.distributed as dist

    from collectives.testing import init_process_group

    init_process_group()
    dist.barrier()
    if rank == VICTIM:
        time.sleep(0.3)
        die(directory)
    raised = catch(lambda: dist.all_reduce(torch.ones(10)))
    return raised, died_at(directory)


def test_a_killed_rank_under_torch_distributed(tmp_path) -> None:
    results = run_ranks(dies_under_torch, 3, str(tmp_path), backend=None, expect_killed={VICTIM}, timeout=40)
    for rank in (0, 2):
        raised, died_s = results[rank]
        assert raised.kind == "DistBackendError", raised
        assert f"rank {VICTIM}" in raised.text
        assert raised.ended_s - died_s < DETECTION_S + SLACK_S
