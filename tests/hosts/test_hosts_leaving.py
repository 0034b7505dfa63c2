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
