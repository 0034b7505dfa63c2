"""A rank that is done sooner than the others: what it sent before it closed its group, or ended, arrives."""

from __future__ import annotations

import pytest

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(60)]


def leaves_at_once(rank: int, world_size: int, how: str) -> float:
    """Rank 1 sends, and closes the group or its process, while most of it is still in its kernel."""
    import numpy as np

    comm = tests.hosts.communicator()
    array = np.full(300_000, float(rank))
    comm.barrier()
    comm.broadcast(array[:1], 1)  # the connection is there
    comm.broadcast(array, 1)
    if how == "close":
        comm.close()
    return float(array.sum())


@pytest.mark.parametrize("how", ["close", "exit"])
def test_what_a_rank_sent_before_it_left_arrives(how: str) -> None:
    """2.4 MB at 20 Mbit/s are a second; the news that the sender is gone goes by another connection."""
    with Hosts(2, rate="20mbit") as hosts:
        assert run_ranks_on_hosts(leaves_at_once, hosts, 1, how, backend=None)[0] == 300_000.0


def messages_and_close(rank: int, world_size: int) -> bool:
    """Rank 1 closes with 4 MB of messages on their way, small and large ones; then it has nothing more to say."""
    import time

    import numpy as np

    import collectives

    comm = tests.hosts.communicator()
    sizes = [4096] * 500 + [1_000_000, 8, 1_000_000]
    if rank == 1:
        sent = [np.full(size, index % 251, np.uint8) for index, size in enumerate(sizes)]
        for each in sent:
            comm.send(each, 0, async_op=True)
        comm.close()
        time.sleep(2)
        return True
    time.sleep(0.3)
    for index, size in enumerate(sizes):
        got = np.zeros(size, np.uint8)
        comm.recv(got, 1, timeout=20)
        if (got != index % 251).any():
            return False
    try:
        comm.recv(np.zeros(1), 1, timeout=20)
    except collectives.PeerFailedError as error:
        return "has closed the group" in str(error)
    return False


def test_messages_sent_before_close_arrive_and_a_receive_after_them_ends() -> None:
    with Hosts(2, rate="100mbit") as hosts:
        assert run_ranks_on_hosts(messages_and_close, hosts, 1, backend=None) == [True, True]
