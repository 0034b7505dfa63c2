"""Ctrl-C and other signals in every wait, abort, and ranks that never come."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from fault_helpers import Raised, catch

from collectives.testing import communicator, run_ranks


def _signal_soon(number: int, after_s: float = 0.4) -> None:
    threading.Timer(after_s, os.kill, (os.getpid(), number)).start()


WAITS = {
    "barrier": lambda c: c.barrier(),
    "large all_reduce": lambda c: c.all_reduce(np.ones(3_000_000)),
    "recv": lambda c: c.recv(np.ones(4), 1),
    "recv from any": lambda c: c.recv(np.ones(4)),
    "large send": lambda c: c.send(np.ones(3_000_000), 1),
    "request": lambda c: c.all_reduce(np.ones(4), async_op=True).wait(),
    "split": lambda c: c.split(0),
}


def interrupted_wait(rank: int, world_size: int, name: str) -> Raised | None:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(2.0)
        return None
    _signal_soon(signal.SIGINT)
    raised = catch(lambda: WAITS[name](comm))
    comm.close()
    return raised


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_every_wait(name: str) -> None:
    raised = run_ranks(interrupted_wait, 2, name, backend=None, timeout=30)[0]
    assert raised.kind == "KeyboardInterrupt", raised
    assert 0.3 < raised.took_s < 1.2


def later_calls(rank: int, world_size: int) -> list[Raised]:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(1.0)
        return [catch(lambda: [comm.all_reduce(np.ones(4)), comm.barrier()])]  # rank 0 had written its share of one
    _signal_soon(signal.SIGINT)
    request = comm.all_reduce(np.ones(4), async_op=True)
    results = [catch(comm.barrier)]
    results += [catch(comm.barrier), catch(request.wait), catch(lambda: comm.recv(np.ones(1), 1))]
    thread = threading.Thread(target=lambda: results.append(catch(comm.barrier)))
    thread.start()
    thread.join(5)
    error = comm.exception()
    return [*results, Raised(type(error).__name__, str(error), 0, 0)]


def test_ctrl_c_is_raised_once_and_later_calls_say_what_it_ended() -> None:
    (first, *later), (peer,) = run_ranks(later_calls, 2, backend=None, timeout=30)
    assert first.kind == "KeyboardInterrupt", first
    assert len(later) == 5
    for raised in later:
        assert raised.kind == "CollectivesError", raised
        assert "all_reduce of float64[4], sum #2" in raised.text, raised.text
        assert "was interrupted by a signal on rank 0" in raised.text, raised.text
    assert peer.kind == "PeerFailedError" and "was interrupted by a signal" in peer.text, peer


def interrupted_init(rank: int, world_size: int) -> Raised | None:
    if rank == 1:
        time.sleep(1.5)
        return None
    _signal_soon(signal.SIGINT)
    return catch(lambda: communicator(timeout=20))


def test_ctrl_c_while_ranks_are_missing() -> None:
    raised = run_ranks(interrupted_init, 2, backend=None, timeout=30)[0]
    assert raised.kind == "KeyboardInterrupt", raised
    assert raised.took_s < 1.4


def handled_signal(rank: int, world_size: int) -> list[int]:
    comm = communicator()
    comm.barrier()
    seen: list[int] = []
    if rank == 0:
        signal.signal(signal.SIGUSR2, lambda number, frame: seen.append(number))
        _signal_soon(signal.SIGUSR2, 0.2)
    else:
        time.sleep(0.8)
    total = comm.all_reduce(np.ones(1))
    assert total[0] == 2
    comm.close()
    return seen


def test_a_signal_handler_that_returns_does_not_end_the_wait() -> None:
    assert run_ranks(handled_signal, 2, backend=None, timeout=30)[0] == [signal.SIGUSR2]


def raising_handler(rank: int, world_size: int) -> Raised | None:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(1.5)
        return None

    def handler(number: int, frame: object) -> None:
        raise LookupError("from the handler")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    return catch(lambda: comm.barrier())


def test_the_handlers_own_exception_comes_out() -> None:
    raised = run_ranks(raising_handler, 2, backend=None, timeout=30)[0]
    assert (raised.kind, raised.text) == ("LookupError", "from the handler")


def missing_rank(rank: int, world_size: int) -> Raised | None:
    if rank == 2:
        return None
    return catch(lambda: communicator(timeout=1.5))


def test_a_rank_that_never_comes_is_named() -> None:
    results = run_ranks(missing_rank, 4, backend=None, timeout=30)
    for rank in (0, 1, 3):
        assert results[rank].kind == "CollectiveTimeoutError", results[rank]
        assert "for rank 2 of 4 to join: not started" in results[rank].text, results[rank].text
        assert 1.0 < results[rank].took_s < 3.5


def wrong_rank(rank: int, world_size: int) -> list[Raised]:
    import torch.distributed as dist

    import collectives

    make = collectives.Communicator.from_store
    return [
        catch(lambda: make(dist.HashStore(), 2, 2)),
        catch(lambda: make(dist.HashStore(), -1, 2)),
        catch(lambda: make(dist.HashStore(), 0, 0)),
        catch(lambda: make(dist.HashStore(), 0, 1, transports=["carrier pigeon"])),
        catch(lambda: make(dist.HashStore(), 0, 1, algorithm="bogus")),
        catch(lambda: make(dist.HashStore(), 0, 1, timeout=-1)),
    ]


def test_a_group_that_makes_no_sense_is_refused() -> None:
    for raised in run_ranks(wrong_rank, 1, backend=None)[0]:
        assert raised.kind == "ValueError", raised


def aborted(rank: int, world_size: int) -> list[Raised]:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(0.4)
        comm.abort("the experiment is over")
        return [catch(lambda: comm.barrier())]
    results: list[Raised] = []
    thread = threading.Thread(target=lambda: results.append(catch(lambda: comm.recv(np.ones(1), 1))))
    thread.start()
    results.append(catch(lambda: comm.all_reduce(np.ones(1))))
    thread.join(5)
    return results


def test_abort_wakes_every_waiter_on_every_rank() -> None:
    results = run_ranks(aborted, 3, backend=None, timeout=30)
    assert [len(result) for result in results] == [2, 1, 2]
    for result in results:
        for raised in result:
            assert raised.kind in ("AbortedError", "PeerFailedError"), raised
            assert "the experiment is over" in raised.text
            assert raised.took_s < 1.5
    assert results[1][0].kind == "AbortedError"


def closed(rank: int, world_size: int) -> list[Raised]:
    comm = communicator()
    comm.all_reduce(np.ones(1))
    comm.close()
    comm.close()
    return [
        catch(lambda: comm.barrier()),
        catch(lambda: comm.recv(np.ones(1), 0)),
        catch(lambda: comm.all_reduce(np.ones(1), async_op=True).wait()),
        catch(lambda: comm.split(0)),
    ]


def test_a_closed_group_says_so() -> None:
    for result in run_ranks(closed, 2, backend=None, timeout=30):
        assert {raised.kind for raised in result} == {"ClosedError"}, result


def one_closes(rank: int, world_size: int) -> Raised | None:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        comm.close()
        time.sleep(1.5)
        return None
    return catch(lambda: comm.all_reduce(np.ones(1), timeout=20))


def test_a_rank_that_closes_early_is_an_error_for_those_that_wait() -> None:
    raised = run_ranks(one_closes, 2, backend=None, timeout=30)[0]
    assert raised.kind in ("PeerFailedError", "ClosedError"), raised
    assert "rank 1" in raised.text
    assert raised.took_s < 1.5
