"""What the ranks of bench/hosts.py do, each in its host's namespaces: collectives and gloo in the same processes.

Used by hosts.py alone, through tests.hosts.run_ranks_on_hosts; includes measure.py, cases.py and the torch peers.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import cases
from bench.measure import measure
from bench.options import Options
from bench.peers.torch_backends import Collectives, Gloo
from bench.world import TorchWorld

LARGE_WARMUP, SMALL_WARMUP = 3, 16
LARGE_FROM_BYTES = 1 << 20


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
    rank: int, world_size: int, ops: tuple[str, ...], sizes: tuple[int, ...], seconds: float, turn: int
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
    order = peers[turn % 2 :] + peers[: turn % 2]
    found = []
    for size in sizes:
        warmup = LARGE_WARMUP if size >= LARGE_FROM_BYTES else SMALL_WARMUP
        options = Options(sizes=sizes, ops=ops, peers=(), warmup=warmup, seconds=seconds)
        # Only all_reduce takes fewer elements than ranks.
        count = max(1, size // 4) if ops == ("all_reduce",) else cases.element_count(size, 4, world_size)
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


# ---- DDP -------------------------------------------------------------------------------------------------------------

WIDTH, LAYERS = 1024, 12  # 12 x (1024 x 1024 + 1024) fp32: 50.4 MB
SMALL_BATCH, LARGEST_BATCH = 16, 512
BUCKET_MB = 8  # of gradients that are exchanged together: torch's default, 25, leaves half of this model to the end


def ddp(
    rank: int, world_size: int, exchange_s: float, steps: int, turn: int, largest_batch: int = LARGEST_BATCH
) -> dict[str, Any]:
    """Time training steps of a 50 MB model; the batch makes computing about as long as `exchange_s`, or is the largest.

    Returns
    -------
    dict
        model_bytes, batch, compute_s (forward and backward under no_sync, all ranks at once), <peer>_step_s: medians of
        the slowest rank.
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    world = HostsWorld()
    torch.manual_seed(1)
    peers = [Collectives(), Gloo()]
    models = {}
    for peer in peers:
        peer.start(world)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        group = dist.new_group(backend=peer.backend)
        models[peer.name] = DistributedDataParallel(
            torch.nn.Sequential(*layers), process_group=group, bucket_cap_mb=BUCKET_MB
        )
    model = models["collectives"]

    def computing(batch: int, count: int) -> float:
        data = torch.randn(batch, WIDTH)
        with model.no_sync():
            return _slowest(world, lambda: model(data).sum().backward(), count)

    # By doubling and not by a slope: one disturbed measurement must not give a batch that never ends.
    batch = min(SMALL_BATCH, largest_batch)
    while batch < largest_batch and computing(batch, 2) < 0.7 * exchange_s:
        batch *= 2
    found: dict[str, Any] = {"batch": batch, "model_bytes": sum(4 * each.numel() for each in model.parameters())}
    computes = [computing(batch, steps)]
    data = torch.randn(batch, WIDTH)
    for peer in peers[turn % 2 :] + peers[: turn % 2]:
        trained = models[peer.name]
        found[f"{peer.name}_step_s"] = _slowest(world, lambda: trained(data).sum().backward(), steps)  # noqa: B023
        _check_gradients(world, trained)
        computes.append(computing(batch, steps))  # again, so that a machine that slows down slows both
    found["compute_s"] = statistics.median(computes)
    world.close()
    return found


def _slowest(world: TorchWorld, step: Callable[[], Any], count: int) -> float:
    """Median over `count` steps, after two that are not timed, of the slowest rank's seconds."""
    times = np.zeros(count + 2)
    for index in range(count + 2):
        world.quiet_barrier()
        started = time.perf_counter()
        step()
        times[index] = time.perf_counter() - started
    return float(np.median(world.maximum(times[2:])))


def _check_gradients(world: TorchWorld, model: Any) -> None:
    """All ranks must have the same gradients, which are not zero: else nothing was exchanged.

    Raises
    ------
    RuntimeError
        If they differ.
    """
    sums = world.gather([float(each.grad.double().sum()) for each in model.parameters()])
    if any(one != sums[0] for one in sums) or not any(sums[0]):
        raise RuntimeError("wrong result: the gradients of the ranks differ after the exchange")


# ---- planner ---------------------------------------------------------------------------------------------------------

_PLAN_LINE = re.compile(r"  (?P<star>[* ]) (?P<name>\w+):.*; (?P<time>[\d.e+-]+) (?P<unit>ns|us|ms|s) predicted")
_UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def read_plan(text: str) -> tuple[str, dict[str, float]]:
    """The algorithm that a plan chose, and each candidate's predicted microseconds.

    Raises
    ------
    ValueError
        When no line, or more than one, is marked as the choice.
    """
    found = [match for line in text.splitlines() if (match := _PLAN_LINE.match(line))]
    chosen = [match["name"] for match in found if match["star"] == "*"]
    if len(chosen) != 1:
        raise ValueError(f"{len(chosen)} algorithms are marked as chosen in the plan:\n{text}")
    return chosen[0], {match["name"]: float(match["time"]) * _UNITS_US[match["unit"]] for match in found}


def plan(
    rank: int, world_size: int, sizes: tuple[int, ...], seconds: float, tune_bytes: int, cache: str
) -> list[dict[str, Any]]:
    """Tune, then for each size time every algorithm in turn, in a group of its own, and read what was predicted.

    Returns
    -------
    list of dict
        {bytes, chosen, predicted_us, measured_us}, the last two by algorithm, medians of the slowest rank.
    """
    import tests.hosts

    os.environ["COLLECTIVES_CACHE"] = cache
    comm = tests.hosts.communicator()
    comm.tune(tune_bytes)
    groups: dict[str, Any] = {}
    found = []
    for size in sizes:
        chosen, predicted = read_plan(comm.describe_plan("all_reduce", "float32", size // 4))
        for name in predicted:
            if name not in groups:
                groups[name] = tests.hosts.communicator(algorithm=name)
        budget = seconds / len(predicted) / (min(predicted.values()) / 1e6)
        count = int(min(300, max(3 if size >= 1 << 20 else 20, budget)))
        measured = _time_algorithms(comm, {name: groups[name] for name in predicted}, size, count)
        found.append({"bytes": size, "chosen": chosen, "predicted_us": predicted, "measured_us": measured})
    for group in [*groups.values(), comm]:
        group.close()
    return found


def _time_algorithms(comm: Any, groups: dict[str, Any], size: int, count: int) -> dict[str, float]:
    """Median microseconds of the slowest rank for each algorithm, interleaved; every result checked."""
    array = np.ones(size // 4, np.float32)
    skipped = 2 if size >= 1 << 20 else 16
    times = {name: np.zeros(count + skipped) for name in groups}
    for index in range(count + skipped):
        for name, group in groups.items():
            array.fill(1)
            comm.barrier()
            started = time.perf_counter()
            group.all_reduce(array)
            times[name][index] = time.perf_counter() - started
            if index in (0, count + skipped - 1) and not np.all(array == comm.world_size):
                raise RuntimeError(f"wrong result: {name} of {size} bytes on rank {comm.rank}")
    for each in times.values():
        comm.all_reduce(each, op="max")
    return {name: float(np.median(each[skipped:])) * 1e6 for name, each in times.items()}
