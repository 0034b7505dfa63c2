"""Random operations between hosts that lose packets, compared with the same ones over shared memory on one host.

``python -m tests.soak.hosts`` (or ``make soak-hosts``), as root: docs/hosts.md. Operations, inputs and the groups that
they run on are drawn from the seed alone, so both runs must give every rank the same bytes; each result is also checked
against NumPy as it comes (tests/soak/operations.py). A failure prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import operations

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts, why_not

HOSTS = 4
LOSS = 0.001
GROUPS_HELD = 3
OPERATION_S = 20.0  # far longer than any takes: a wait that does not end is an error that says who waits for whom
NEW_GROUP_SHARE = 1 / 8  # of the bursts


class Digest:
    """The hash of all results of a rank, in the order in which they were checked."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.checked = 0
        self.bytes = 0
        self.compare = operations.check

    def check(self, draw: operations.Draw, name: str, actual: np.ndarray, expected: np.ndarray, detail: str) -> None:
        self.compare(draw, name, actual, expected, detail)
        self.hash.update(f"{draw.index} {name} {actual.dtype} {actual.size};".encode())
        self.hash.update(np.ascontiguousarray(actual))
        self.checked += 1
        self.bytes += actual.nbytes


def soak(rank: int, world_size: int, seed: int, count: int) -> tuple[str, int, int, int]:
    """Run the operations of a seed; return the digest of the results, how many and how many bytes, descriptors leaked.

    Bursts of up to eight operations, some asynchronous, run on the world or on one of a few groups split from it, of
    which the oldest is closed when a new one is made.
    """
    digest = Digest()
    operations.check = digest.check
    world = tests.hosts.communicator(timeout=OPERATION_S)
    world.barrier()
    rng = np.random.default_rng(seed)
    held: list[Any] = []
    index, before = 0, 0
    while index < count:
        if rng.random() < NEW_GROUP_SHARE:
            colors = [int(color) for color in rng.integers(0, 2, world_size)]
            held.append(world.split(colors[rank]))
            if len(held) > GROUPS_HELD:
                held.pop(0).close()
        which = int(rng.integers(len(held) + 1))
        group = world if which == len(held) else held[which]
        pending = []
        for _ in range(min(int(rng.integers(1, 9)), count - index)):
            pending.append(operations.start(group, operations.Draw(seed, index, group.rank, group.world_size)))
            index += 1
        for finish in pending:
            finish()
        before = before or (len(os.listdir("/proc/self/fd")) if index > count // 2 else 0)
    world.barrier()
    leaked = len(os.listdir("/proc/self/fd")) - before
    for group in [*held, world]:
        group.close()
    return digest.hash.hexdigest(), digest.checked, digest.bytes, leaked


def compare(seed: int, count: int, timeout: float) -> str:
    """Run a seed between hosts and within one; return what was done.

    Raises
    ------
    AssertionError
        If results differ, descriptors leak, or no packet was lost.
    """
    began_s = time.monotonic()
    with Hosts(HOSTS, loss=LOSS) as hosts:
        between = run_ranks_on_hosts(soak, hosts, 1, seed, count, backend=None, timeout=timeout)
        lost = sum(hosts.dropped_packets(host) for host in range(HOSTS))
        took_s = time.monotonic() - began_s
        within = run_ranks_on_hosts(soak, hosts, [HOSTS, 0, 0, 0], seed, count, backend=None, timeout=timeout)
    for rank, (one, other) in enumerate(zip(between, within, strict=True)):
        assert one[:3] == other[:3], f"rank {rank}: {one[:3]} between hosts, {other[:3]} over shared memory"
        assert one[3] <= 0, f"rank {rank}: {one[3]} descriptors leaked"
    assert lost > 0, "no packet was lost: this was no test of losses"
    results, size = sum(each[1] for each in between), sum(each[2] for each in between) / 1e6
    return (
        f"{count} operations on {HOSTS} hosts in {took_s:.0f} s ({lost} packets lost), the same over shared memory in "
        f"{time.monotonic() - began_s - took_s:.0f} s: {results} results of {size:.0f} MB are the same"
    )


def main() -> int:
    """Run one comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=10_000, help="how many (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="what is drawn (default: the time)")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for each of the two runs")
    args = parser.parse_args()
    if reason := why_not():
        print(f"tests.soak.hosts: {reason}", file=sys.stderr)
        return 2
    # Imported once more under its name: functions of __main__ cannot be found by the ranks.
    from tests.soak import hosts as this

    seed = time.time_ns() % 10**9 if args.seed is None else args.seed
    repeat = f"python -m tests.soak.hosts --seed {seed} --operations {args.operations}"
    print(f"seed {seed}; to repeat it: {repeat}", flush=True)
    try:
        print(this.compare(seed, args.operations, args.timeout))
    except AssertionError as error:
        print(f"{error}\n\nTo repeat it: {repeat}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
