"""What ``collectives info --plan`` shows: the algorithms that a call would take on this machine, asked of a real group.

Its processes are started for the question, since what is chosen depends on what this machine allows and measures.
Called by the command line alone.
"""

from __future__ import annotations

from typing import Any

from collectives import config, testing

_IN_BLOCKS = {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}
_TIMEOUT_S = 60.0

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


def _ask_group(rank: int, world_size: int, collective: str, count: int, dtype: str, op: Any) -> dict[str, str]:
    with testing.communicator(name="plan") as group:
        group.barrier()
        return {"group": group.describe(), "plan": group.describe_plan(collective, dtype, count, op)}
