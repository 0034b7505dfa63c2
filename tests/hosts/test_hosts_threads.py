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
ROUNDS = 60
PAUSE_S = 0.02  # so long that the other side is asleep
LATE_S = 0.008  # between a wake-up (below 1 ms, also of a busy machine mostly) and a look around (20 ms)


def waits_beside_a_busy_thread(rank: int, world_size: int) -> list[float]:
    """Keep one group busy in a thread of its own, and time the other: how late after rank 0's call rank 1 returns."""
    busy, timed = tests.hosts.communicator(), tests.hosts.communicator()
    for group in (busy, timed):
        group.all_reduce(np.ones(100))

    def keep_busy() -> None:
        going = np.ones(1, np.int64)
        payload = np.ones(2_000)
        while going[0]:
            busy.all_reduce(payload, "max")
            if rank == 0:
                going[0] = not stop.is_set()
            busy.broadcast(going, root=0)

    stop = threading.Event()
    thread = threading.Thread(target=keep_busy)
    thread.start()
    late_s = []
    for _ in range(ROUNDS):
        sent_s = np.zeros(1)
        if rank == 0:
            time.sleep(PAUSE_S)
            sent_s[0] = time.monotonic()  # the hosts share the clock
        timed.broadcast(sent_s, root=0)
        late_s.append(time.monotonic() - sent_s[0])
        timed.barrier()
    stop.set()
    thread.join()
    return late_s


def test_what_one_thread_reads_wakes_the_other() -> None:
    with Hosts(2) as hosts:
        _, late_s = run_ranks_on_hosts(
            waits_beside_a_busy_thread, hosts, 1, backend=None, env={"COLLECTIVES_SPIN_US": "0"}
        )
    late = sum(each > LATE_S for each in late_s)
    assert late < ROUNDS / 6, (late, sorted(round(1e3 * each, 2) for each in late_s))
