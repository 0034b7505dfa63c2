"""A rank between hosts that is killed, stopped, cut off or silent: every other rank is told which, and goes on without.

Each fault strikes in the midst of all_reduces of 64 MiB, once with one rank a host and once with two. A killed rank is
noticed by the end of its connections; for the others there is nothing to notice but the operation's deadline.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts, wait_until

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))

from fault_helpers import Raised, catch, die, died_at

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(120)]
ELEMENTS = (64 << 20) // 4
DEADLINE_S = 3.0  # several times what an operation takes
DETECTION_S = 1.0  # of a death: the contract
SLACK_S = 1.0  # of a machine with fewer cores than ranks
LAYOUTS = [[1, 1, 1], [2, 2]]


@dataclass
class Account:
    """What one rank went through."""

    raised: Raised  # by the operation that failed
    again: Raised  # by the next one
    struck_s: float  # when the fault came
    after: str  # what went on: "sums of ranks ..." or what was wrong


def reduces_until_it_strikes(
    rank: int, world_size: int, fault: str, victims: list[int], cut_off: list[int], folder: str
) -> Account:
    """All-reduce until it fails, and go on with the ranks that are left.

    A rank of `victims` kills or stops itself. Where the network is at fault, the test strikes when it finds the file
    `ready`, and the ranks in `cut_off` cannot even reach the store, so there is nothing that they could go on with.
    """
    comm = tests.hosts.communicator()
    processes = np.zeros(world_size, np.int64)
    comm.all_gather(processes, np.array([os.getpid()]))
    array = np.ones(ELEMENTS, np.float32)
    comm.all_reduce(array, timeout=30.0)
    comm.barrier(timeout=30.0)
    if rank in victims:
        number = signal.SIGSTOP if fault == "stop" else signal.SIGKILL
        threading.Timer(0.3, die, (folder, number)).start()
    elif rank == 0:
        Path(folder, "ready").touch()

    def reduce_for_ever() -> None:
        while True:
            comm.all_reduce(array, "max", timeout=DEADLINE_S)

    raised = catch(reduce_for_ever)
    again = catch(lambda: comm.all_reduce(np.ones(1)))
    # Once the file is there, the fault has come. What came before it was no failure.
    struck_s = died_at(folder, wait_s=30.0)
    after = "nothing, it is cut off"
    if rank not in cut_off:
        after = _goes_on(comm, rank, [each for each in range(world_size) if each not in cut_off])
    if fault == "stop" and rank == 0:
        for victim in victims:
            os.kill(int(processes[victim]), signal.SIGCONT)
    return Account(raised, again, struck_s, after)


def _goes_on(comm, rank: int, survivors: list[int]) -> str:
    """Shrink to the survivors and check a sum of theirs."""
    rest = comm.shrink([each for each in range(comm.world_size) if each not in survivors])
    array = np.full(100_000, rank + 1.0)
    rest.all_reduce(array, timeout=20.0)
    rest.barrier(timeout=20.0)
    expected = sum(each + 1.0 for each in survivors)
    return f"sums of ranks {survivors}" if (array == expected).all() else f"{array[0]} instead of {expected}"


def run_fault(layout: list[int], fault: str, victims: list[int], cut_off: list[int], folder: Path) -> list[Account]:
    """Run the ranks; for a fault of the network, strike at the last host once they are under way."""
    with Hosts(len(layout)) as hosts:
        last = len(layout) - 1

        def strike() -> None:
            wait_until(lambda: (folder / "ready").exists(), 60, "the ranks' first all_reduce")
            time.sleep(0.3)
            if fault == "cable":
                hosts.link_down(last)
            else:
                hosts.blackhole(last)
            (folder / "died.new").write_text(str(time.monotonic()), encoding="utf-8")
            (folder / "died.new").rename(folder / "died")

        thread = threading.Thread(target=strike)
        if fault in ("cable", "silence"):
            thread.start()
        killed = victims if fault == "kill" else []
        found = run_ranks_on_hosts(
            reduces_until_it_strikes, hosts, layout, fault, victims, cut_off, str(folder),
            backend=None, expect_killed=killed, timeout=90,
        )  # fmt: skip
        if thread.ident is not None:
            thread.join()
    return found


def names(text: str) -> set[int]:
    """Return the ranks that an error names with their process."""
    return {int(number) for number in re.findall(r"rank (\d+) \(process", text)}


def leads_to(found: list[Account], rank: int, culprits: list[int]) -> bool:
    """Tell whether a rank's error names one of the culprits, or a rank whose own error does, and so on.

    Within an algorithm ranks wait in a chain: in a ring for a neighbour, on two levels for the rank beside them, which
    waits for the one that is stopped. A rank sees the link of the chain that it hangs on.
    """
    seen, to_do = set(), [rank]
    while to_do:
        here = to_do.pop()
        if here in culprits:
            return True
        if here not in seen:
            seen.add(here)
            to_do += names(found[here].raised.text) - {here}
    return False


def ranks_of(layout: list[int], host: int) -> list[int]:
    start = sum(layout[:host])
    return list(range(start, start + layout[host]))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_killed_rank_is_named_within_a_second_and_the_others_go_on(layout: list[int], tmp_path: Path) -> None:
    victim = ranks_of(layout, len(layout) - 1)[-1]
    found = run_fault(layout, "kill", [victim], [victim], tmp_path)
    survivors = [rank for rank in range(sum(layout)) if rank != victim]
    for rank in survivors:
        account = found[rank]
        assert account.raised.kind == "PeerFailedError", account.raised
        assert victim in names(account.raised.text) and "died" in account.raised.text, account.raised.text
        assert account.raised.ended_s - account.struck_s < DETECTION_S + SLACK_S, account
        assert account.again.text == account.raised.text and account.again.took_s < 0.5, account.again
        assert account.after == f"sums of ranks {survivors}"


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_stopped_rank_is_named_at_the_deadline_and_hangs_nobody_when_it_continues(
    layout: list[int], tmp_path: Path
) -> None:
    victim = ranks_of(layout, len(layout) - 1)[-1]
    found = run_fault(layout, "stop", [victim], [victim], tmp_path)
    survivors = [rank for rank in range(sum(layout)) if rank != victim]
    for rank in survivors:
        account = found[rank]
        assert account.raised.kind == "CollectiveTimeoutError", account.raised.text
        assert leads_to(found, rank, [victim]), [each.raised.text for each in found]
        assert DEADLINE_S - 1 < account.raised.ended_s - account.struck_s < DEADLINE_S + SLACK_S, account
        assert account.again.text == account.raised.text and account.again.took_s < 0.5, account.again
        assert account.after == f"sums of ranks {survivors}"
    assert found[victim].raised.kind in ("PeerFailedError", "CollectiveTimeoutError"), found[victim].raised
    assert found[victim].again.text == found[victim].raised.text


@pytest.mark.parametrize("fault", ["cable", "silence"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_host_that_is_cut_off_is_named_at_the_deadline(layout: list[int], fault: str, tmp_path: Path) -> None:
    lost = ranks_of(layout, len(layout) - 1)
    found = run_fault(layout, fault, [], lost, tmp_path)
    survivors = [rank for rank in range(sum(layout)) if rank not in lost]
    for rank, account in enumerate(found):
        others = survivors if rank in lost else lost
        assert account.raised.kind == "CollectiveTimeoutError", (rank, account.raised.text)
        assert leads_to(found, rank, others), (rank, [each.raised.text for each in found])
        assert DEADLINE_S - 1 < account.raised.ended_s - account.struck_s < DEADLINE_S + SLACK_S, (rank, account)
        assert account.again.text == account.raised.text and account.again.took_s < 0.5, account.again
        if rank in survivors:
            assert account.after == f"sums of ranks {survivors}"
