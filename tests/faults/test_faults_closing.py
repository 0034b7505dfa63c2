"""Closing a group with messages under way: what was sent arrives, what cannot arrive is an error on both sides."""

from __future__ import annotations

import time

import numpy as np
import pytest

import collectives
from collectives.testing import communicator, run_ranks

MESSAGES, BYTES = 3000, 4096  # 12 MB: most of it cannot have left before close() is called


def sends_and_closes(rank: int, world_size: int) -> bool:
    comm = communicator()
    if rank == 0:
        data = np.empty((MESSAGES, BYTES), np.uint8)
        data[:] = (np.arange(MESSAGES) % 251)[:, None]
        for index in range(MESSAGES):
            comm.send(data[index], 1, async_op=True)
        comm.close()
        return True
    time.sleep(0.2)  # rank 0 may be in close() by now; the result is the same when it is not
    got = np.zeros(BYTES, np.uint8)
    for index in range(MESSAGES):
        comm.recv(got, 0, timeout=20)
        if (got != index % 251).any():
            return False
    comm.close()
    return True


def test_what_was_sent_before_close_arrives() -> None:
    assert run_ranks(sends_and_closes, 2, backend=None, timeout=60) == [True, True]


def large_and_closes(rank: int, world_size: int) -> float:
    comm = communicator()
    data = np.full(1_000_000, 3.0)
    if rank == 0:
        comm.send(data, 1, async_op=True)  # waits for its receiver
    else:
        data[:] = 0
        time.sleep(0.2)
        comm.recv(data, 0, timeout=20)
    comm.close()
    return float(data.sum())


def test_a_large_message_is_waited_for_by_close() -> None:
    assert run_ranks(large_and_closes, 2, backend=None, timeout=60) == [3e6, 3e6]


def never_received(rank: int, world_size: int) -> tuple[str, str, float]:
    comm = communicator(name="job")
    if rank == 0:
        comm.send(np.ones(1_000_000), 1, async_op=True)
        began_s = time.monotonic()
        try:
            comm.close(timeout=0.5)
        except collectives.CollectiveTimeoutError as error:
            return "timeout", str(error), time.monotonic() - began_s
        return "nothing", "", 0.0
    try:
        comm.recv(np.zeros(1), 0, tag=5, timeout=30)  # another message, which nobody sends
    except collectives.CollectivesError as error:
        return type(error).__name__, str(error), 0.0
    return "nothing", "", 0.0


def test_a_message_that_nobody_receives_is_an_error_of_close_and_of_the_peer() -> None:
    (kind, text, took_s), (peer_kind, peer_text, _) = run_ranks(never_received, 2, backend=None, timeout=60)
    assert kind == "timeout" and 0.5 <= took_s < 5
    assert "closing group 'job': send to rank 1 (8000000 bytes, tag 0) had not ended after 0.5 s" in text
    assert peer_kind in ("CollectiveTimeoutError", "PeerFailedError")
    assert "rank 0" in peer_text and "closing group 'job'" in peer_text


def receives_from_closed(rank: int, world_size: int, any_source: bool, late: bool) -> tuple[str, str, float]:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        comm.send(np.full(1, 7.0), 0)
        comm.close()
        time.sleep(2)  # the group is closed, the process is not
        return "", "", 0.0
    if rank == 2:
        if any_source:
            comm.close()  # else it is there all the time, and what is received from rank 1 must end all the same
        time.sleep(2)
        return "", "", 0.0
    source = None if any_source else 1
    got = np.zeros(1)
    if late:
        time.sleep(0.3)
    comm.recv(got, source, timeout=30)
    began_s = time.monotonic()
    try:
        comm.recv(got, source, timeout=30)
    except collectives.PeerFailedError as error:
        return str(got[0]), str(error), time.monotonic() - began_s
    return "nothing", "", 0.0


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("any_source", [False, True], ids=["named", "any"])
def test_a_receive_from_a_rank_that_has_closed_the_group_ends(any_source: bool, late: bool) -> None:
    value, text, took_s = run_ranks(receives_from_closed, 3, any_source, late, backend=None, timeout=60)[0]
    assert value == "7.0"  # what came before it closed is received
    assert "has closed the group" in text and "rank" in text
    assert took_s < 1.0
