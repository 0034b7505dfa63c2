"""What a timeout of None, 0, infinity and less than 0 means, in every method that takes one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collectives
from collectives.testing import communicator, run_ranks

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "all_reduce": lambda c, t: c.all_reduce(np.ones(3), timeout=t),
    "reduce_scatter": lambda c, t: c.reduce_scatter(np.ones(1), np.ones(c.world_size), timeout=t),
    "all_gather": lambda c, t: c.all_gather(np.ones(c.world_size), np.ones(1), timeout=t),
    "all_to_all": lambda c, t: c.all_to_all(np.ones(c.world_size), np.ones(c.world_size), timeout=t),
    "broadcast": lambda c, t: c.broadcast(np.ones(3), root=1, timeout=t),
    "reduce": lambda c, t: c.reduce(np.ones(3), root=0, timeout=t),
    "gather": lambda c, t: c.gather(np.ones(c.world_size), np.ones(1), root=0, timeout=t),
    "scatter": lambda c, t: c.scatter(np.ones(1), np.ones(c.world_size), root=1, timeout=t),
    "barrier": lambda c, t: c.barrier(timeout=t),
    "recv": lambda c, t: c.recv(np.ones(3), 1, timeout=t),
    "send": lambda c, t: c.send(np.ones(100_000), 1, timeout=t),
    "async": lambda c, t: c.all_reduce(np.ones(3), async_op=True, timeout=t).wait(),
    "wait": lambda c, t: c.all_reduce(np.ones(3), async_op=True).wait(t),
}


def alone(rank: int, world_size: int, name: str) -> tuple[str, float, str]:
    comm = communicator(name=name)
    if rank == 1:
        time.sleep(1.0)
        return "", 0.0, ""
    began_s = time.monotonic()
    try:
        CALLS[name](comm, 0)
    except Exception as error:
        return type(error).__name__, time.monotonic() - began_s, str(error)
    return "nothing", 0.0, ""


@pytest.mark.parametrize("name", CALLS)
def test_zero_fails_at_once_where_the_peer_has_not_come(name: str) -> None:
    kind, took_s, text = run_ranks(alone, 2, name, backend=None, timeout=30)[0]
    assert kind == "CollectiveTimeoutError", text
    assert took_s < 0.5
    assert "rank 1" in text, text


def both_there(rank: int, world_size: int) -> None:
    comm = communicator()
    for value in (0, 0.0):
        comm.send(np.full(1, 7.0), 1 - rank, timeout=value)  # a small one is buffered: it ends at once
        time.sleep(0.3)
        got = np.zeros(1)
        comm.recv(got, timeout=value)
        assert got[0] == 7.0
    for value in (None, math.inf, 1e300, 20, np.float32(20)):
        assert comm.all_reduce(np.ones(1), timeout=value)[0] == world_size
        assert comm.all_reduce(np.ones(1), async_op=True, timeout=value).wait(value)[0] == world_size
    comm.timeout = math.inf
    assert comm.timeout == math.inf
    comm.barrier()
    comm.close(0)


def test_what_can_end_at_once_ends_whatever_the_timeout() -> None:
    run_ranks(both_there, 2, backend=None)


def refused(rank: int, world_size: int) -> None:
    comm = communicator()
    for name, call in CALLS.items():
        if name in ("send", "recv", "broadcast", "scatter"):  # to a rank that a group of one has not
            continue
        for value in (-1, -0.001, -math.inf, math.nan):
            with pytest.raises(ValueError, match="timeout: must be at least 0 seconds, got"):
                call(comm, value)
        with pytest.raises(TypeError, match="timeout: expected seconds as a number or None, got"):
            call(comm, "soon")
    for value in (-1, math.nan):
        with pytest.raises(ValueError, match="timeout: must be at least 0 seconds"):
            comm.timeout = value
        with pytest.raises(ValueError, match="timeout: must be at least 0 seconds"):
            comm.close(value)
    with pytest.raises(TypeError, match="timeout: expected seconds as a number"):
        comm.timeout = None
    comm.close()


def test_negative_is_refused_before_anything_is_sent() -> None:
    run_ranks(refused, 1, backend=None)


def test_help_says_what_a_timeout_means() -> None:
    for name in ("all_reduce", "all_to_all", "barrier", "recv", "send", "scatter"):
        text = getattr(collectives.Communicator, name).__doc__
        assert "None: as many as the group's" in text and "0: it fails unless" in text, name
    assert "negative is a ValueError" in collectives.Communicator.__doc__
