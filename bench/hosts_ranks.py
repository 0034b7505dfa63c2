"""What the ranks of bench/hosts.py do, each in its host's namespaces: collectives and gloo in the same processes.

Used by hosts.py alone, through tests.hosts.run_ranks_on_hosts; includes measure.py, cases.py and the torch peers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import cases
from bench.measure import measure
from bench.options import Options
from bench.peers.torch_backends import Collectives, Gloo
from bench.world import TorchWorld


class HostsWorld(TorchWorld):
    """Ranks placed on the hosts of a rig; control over a gloo group that is never measured."""

    launcher = "tests.hosts"

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        import tests.hosts

        torch.set_num_threads(1)  # another thread that waits in a spin takes the core that a rank needs
        tests.hosts.init_process_group("gloo")
        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()


def sweep(
    rank: int, world_size: int, ops: tuple[str, ...], sizes: tuple[int, ...], seconds: float, warmup: int, turn: int
) -> list[dict[str, Any]]:
    """Time operations of both backends, verified, in an order that turns.

    Returns
    -------
    list of dict
        A cell for each operation and size: {op, bytes, <peer>: {median_us, p95_us, iterations} or {error, wrong}}.
    """
    world = HostsWorld()
    peers = [Collectives(), Gloo()]
    for peer in peers:
        peer.start(world)
    options = Options(sizes=sizes, ops=ops, peers=(), warmup=warmup, seconds=seconds)
    order = peers[turn % 2 :] + peers[: turn % 2]
    found = []
    for size in sizes:
        count = cases.element_count(size, 4, world_size)
        buffers = cases.allocate(count, world_size, np.dtype(np.float32))
        for op in ops:
            case = cases.Case(cases.operation(op), count, rank, world_size, np.dtype(np.float32))
            cell: dict[str, Any] = {"op": op, "bytes": case.size_bytes}
            for peer in order:
                cell[peer.name] = as_dict(measure(world, peer, case, buffers, options))
            found.append(cell)
    for peer in peers:
        peer.stop()
    world.close()
    return found


def as_dict(measured: Any) -> dict[str, Any]:
    """Figures of a Measurement, or why there are none."""
    if measured.summary is None:
        return {"error": measured.error, "wrong": measured.wrong}
    return {
        "median_us": measured.summary.median_us,
        "p95_us": measured.summary.p95_us,
        "iterations": measured.summary.iterations,
    }
