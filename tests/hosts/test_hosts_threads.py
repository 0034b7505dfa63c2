"""Two threads of a process with a group each, between hosts: what one reads for the other's group wakes the other.

All groups of a process share its links, and whoever looks at them reads what has come, for every group. A thread that
sleeps until something comes for its own group is not told by the system of what another has taken already. It has to be
woken by the reader, or it notices at its next look around, up to 20 ms later.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(60)]
ROUNDS = 25
SPIN_S = 0.030  # a wait spins that long, then sleeps 20 ms at a time
READER_S = 0.040  # when the other thread begins to wait, and to spin, while the first has gone to sleep
SENT_S = 0.054  # when its frame comes: the reader still spins, and the sleeper's next look around is 16 ms away
LATE_S = 0.008


def one_thread_sleeps_and_another_reads(rank: int, world_size: int) -> list[float]:
    """Rank 0 sends for one group, then for the other; return how late rank 1's sleeper came back."""
    slept, read = tests.hosts.communicator(), tests.hosts.communicator()
    for group in (slept, read):
        group.all_reduce(np.ones(100))
    late_s: list[float] = []

    def sleep() -> None:
        sent_s = np.zeros(1)
        slept.broadcast(sent_s, root=0)
        late_s.append(time.monotonic() - sent_s[0])  # the hosts share the clock

    for _ in range(ROUNDS):
        slept.barrier()
        if rank == 0:
            time.sleep(SENT_S)
            slept.broadcast(np.array([time.monotonic()]), root=0)
            time.sleep(0.020)
            read.broadcast(np.zeros(1), root=0)
            continue
        thread = threading.Thread(target=sleep)
        thread.start()
        time.sleep(READER_S)
        read.broadcast(np.zeros(1), root=0)
        thread.join()
    slept.barrier()
    return late_s


def test_what_one_thread_reads_wakes_the_other() -> None:
    with Hosts(2) as hosts:
        _, late_s = run_ranks_on_hosts(
            one_thread_sleeps_and_another_reads, hosts, 1, backend=None,
            env={"COLLECTIVES_SPIN_US": str(int(1e6 * SPIN_S))},
        )  # fmt: skip
    assert float(np.median(late_s)) < LATE_S, sorted(round(1e3 * float(each), 2) for each in late_s)
