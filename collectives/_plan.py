"""What ``collectives info --plan`` and ``collectives tune`` do: ask a real group, and let it measure.

Started by a launcher (torchrun, mpirun, srun), the command is a rank of the job, and the group is that of all its
ranks. Else `info --plan` starts processes on this machine for the question, since what is chosen depends on what the
machine allows and measures. Called by the command line alone.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import numpy as np

import collectives
from collectives import _rendezvous, config, testing

_IN_BLOCKS = {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}
_TIMEOUT_S = 60.0
_TUNE_TIMEOUT_S = 600.0
_HOST_NAME_BYTES = 256

parse_size = config.parse_bytes(0, 1 << 50)


def count_of(collective: str, size_bytes: int, element_bytes: int, ranks: int) -> int:
    """Return the elements of one block of a call whose whole vector has `size_bytes`.

    The whole vector is the output of all_gather and gather, the input of the others, as in the benchmark.

    Raises
    ------
    ValueError
        If the size is no whole number of elements in each block.
    """
    blocks = ranks if collective in _IN_BLOCKS else 1
    if size_bytes % (element_bytes * blocks):
        each = f"{blocks} blocks of " if blocks > 1 else ""
        raise ValueError(
            f"{config.format_bytes(size_bytes)} are not {each}whole elements of {element_bytes} bytes: "
            f"take a multiple of {element_bytes * blocks} bytes"
        )
    return size_bytes // (element_bytes * blocks)


def ask(collective: str, count: int, dtype: str, op: str, ranks: int) -> dict[str, str]:
    """Start `ranks` processes, let them form a group, and ask rank 0.

    Returns
    -------
    dict
        ``group``: what it runs on; ``plan``: the algorithms of the call, one a line.

    Raises
    ------
    collectives.testing.RanksFailed
        If the group cannot be made here, or refuses the call; the message has the reason.
    """
    return testing.run_ranks(_ask_group, ranks, collective, count, dtype, op, backend=None, timeout=_TIMEOUT_S)[0]


def launched() -> tuple[int, int] | None:
    """Return this process's rank and the number of ranks where a launcher started it; None where none did."""
    if {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    launch = _rendezvous.find_launch(os.environ)
    return None if launch is None else (launch.rank, launch.world_size)


def ask_job(collective: str, count: int, dtype: str, op: Any) -> dict[str, str]:
    """Join the group of all ranks of the job, and ask it. The same on every rank.

    Returns
    -------
    dict
        As :func:`ask`.
    """
    with collectives.Communicator.from_env(timeout=_TIMEOUT_S) as group:
        group.barrier()
        answer = {"group": group.describe(), "plan": group.describe_plan(collective, dtype, count, op)}
        group.barrier()
    return answer


def describe_job() -> dict[str, Any]:
    """Join the group of all ranks of the job, and tell where they are. The same on every rank, but for `group`.

    Returns
    -------
    dict
        ``hosts``: the names of the hosts, in the order of their first ranks, with the list of ranks of each; ``group``:
        what it runs on, as this rank sees it.
    """
    with collectives.Communicator.from_env(timeout=_TIMEOUT_S) as group:
        own = np.zeros(_HOST_NAME_BYTES, np.uint8)
        name = socket.gethostname().encode()[:_HOST_NAME_BYTES]
        own[: len(name)] = np.frombuffer(name, np.uint8)
        names = np.zeros((group.world_size, _HOST_NAME_BYTES), np.uint8)
        group.all_gather(names, own)
        hosts: dict[str, list[int]] = {}
        for rank, each in enumerate(names):
            hosts.setdefault(each.tobytes().rstrip(b"\0").decode(errors="replace"), []).append(rank)
        answer = {"hosts": hosts, "group": group.describe()}
        group.barrier()
    return answer


def tune_job(max_bytes: int) -> str | None:
    """Join the group of all ranks of the job, let it measure, and lay out the result; None on ranks other than 0.

    Returns
    -------
    str
        Where it is kept, and which algorithm all_reduce takes from which size on.
    """
    with collectives.Communicator.from_env(timeout=_TUNE_TIMEOUT_S) as group:
        path = group.tune(max_bytes)
        lines = [group.describe()]
        lines.append(f"kept in {path}" if path else "kept nowhere: neither COLLECTIVES_CACHE nor a home is known")
        last = ""
        for power in range(3, max_bytes.bit_length()):
            plan = group.describe_plan("all_reduce", "float32", 2**power // 4)
            taken = next((line for line in plan.splitlines() if line.startswith("  * ")), "")
            name = taken[4:].split(":")[0]
            if name != last:
                lines.append(f"  all_reduce from {config.format_bytes(2**power)}: {name}")
            last = name
        group.barrier()
        return "\n".join(lines) if group.rank == 0 else None


def _ask_group(rank: int, world_size: int, collective: str, count: int, dtype: str, op: Any) -> dict[str, str]:
    with testing.communicator(name="plan") as group:
        group.barrier()
        return {"group": group.describe(), "plan": group.describe_plan(collective, dtype, count, op)}
