"""Measures one peer on one case: verify, warm up, time, verify again. The method of bench/README.md.

Used by run.py; includes cases.py, metrics.py, options.py, world.py and peers/base.py.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

import numpy as np

from bench.cases import Buffers, Case
from bench.metrics import Summary, summarise
from bench.options import SMALL_MESSAGE_BYTES, Options
from bench.peers.base import Call, Peer, PeerUnavailableError
from bench.world import World

FEWEST_ITERATIONS, MOST_ITERATIONS = 5, 2000
BACK_TO_BACK = 100


@dataclass
class Measurement:
    """One block: a peer on a case in a round. `error` says why there is no figure; `wrong` counts wrong elements."""

    summary: Summary | None = None
    back_to_back_us: float | None = None
    error: str | None = None
    wrong: int = 0


def measure(world: World, peer: Peer, case: Case, buffers: Buffers, options: Options) -> Measurement:
    """Time `peer` on `case`, on every rank at once; every rank returns the same Measurement.

    A wrong result anywhere, in the verified call or in the timed loop, gives a Measurement without figures.
    """
    call, error = _bound(peer, case, buffers)
    problem = _first_problem(world, error)
    if problem or call is None:
        return Measurement(error=problem)
    failed = _verify(world, peer, case, buffers, call)
    if failed:
        return failed
    for _ in range(options.warmup):
        call()
        case.refill(buffers)
    started = time.perf_counter()
    call()
    once_seconds = world.agree_maximum(time.perf_counter() - started)
    count = options.iterations or int(
        max(FEWEST_ITERATIONS, min(MOST_ITERATIONS, options.seconds / max(once_seconds, 1e-7)))
    )
    times = world.maximum(_timed_loop(peer, case, buffers, call, count))
    wrong = _wrong_anywhere(world, case, buffers, timed=True)
    if wrong:
        return Measurement(error="wrong result in the timed loop", wrong=wrong)
    small = case.size_bytes <= SMALL_MESSAGE_BYTES
    loops_us = _back_to_back(world, peer, buffers, call, once_seconds) if small else None
    return Measurement(summarise(times.tolist()), loops_us)


def _bound(peer: Peer, case: Case, buffers: Buffers) -> tuple[Call | None, str | None]:
    try:
        return peer.bind(case.operation.name, buffers), None
    except PeerUnavailableError as error:
        return None, str(error)


def _first_problem(world: World, error: str | None) -> str | None:
    problems = [(rank, text) for rank, text in enumerate(world.gather(error)) if text is not None]
    return f"rank {problems[0][0]}: {problems[0][1]}" if problems else None


def _verify(world: World, peer: Peer, case: Case, buffers: Buffers, call: Call) -> Measurement | None:
    """Run the call once on patterned inputs and compare every element; None when all ranks are right."""
    case.load(buffers)
    case.spoil(buffers)
    error = None
    try:
        if case.operation.name == "barrier":
            wrong = _barrier_violations(world, call)
        else:
            call()
            wrong = case.wrong_elements(buffers)
    except Exception as raised:  # whatever a peer raises belongs in the report, beside its name
        error, wrong = f"{type(raised).__name__}: {raised}", 0
    problem = _first_problem(world, error)
    if problem:
        return Measurement(error=problem)
    wrong_ranks = [(rank, count) for rank, count in enumerate(world.gather(wrong)) if count]
    if wrong_ranks:
        rank, count = wrong_ranks[0]
        what = "late ranks not waited for" if case.operation.name == "barrier" else f"of {case.count} elements"
        return Measurement(error=f"wrong result: {count} {what} on rank {rank}", wrong=count)
    return None


def _barrier_violations(world: World, call: Call) -> int:
    """Let each rank in turn come late: nobody may leave before it came. One host's monotonic clock is common."""
    violations = 0
    for late in range(world.size):
        world.quiet_barrier()
        if world.rank == late:
            time.sleep(0.002)
        entered = time.monotonic_ns()
        call()
        left = time.monotonic_ns()
        last_entered = world.agree_maximum(float(entered))
        violations += left < last_entered
    return violations


def _wrong_anywhere(world: World, case: Case, buffers: Buffers, timed: bool) -> int:
    wrong = 0 if case.operation.name == "barrier" else case.wrong_elements(buffers, timed)
    return int(world.agree_maximum(float(wrong)))


def _timed_loop(peer: Peer, case: Case, buffers: Buffers, call: Call, count: int) -> np.ndarray:
    """Nanoseconds of each iteration on this rank: barrier, clock, call, clock; the refill is not timed."""
    times = np.zeros(count, np.float64)
    barrier, clock = peer.barrier, time.perf_counter_ns
    case.refill(buffers)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for i in range(count):
            if i == count - 1:
                case.spoil(buffers)  # so that the check after the loop sees what the last iteration wrote
            barrier()
            started = clock()
            call()
            times[i] = clock() - started
            if i < count - 1:
                case.refill(buffers)
    finally:
        if collecting:
            gc.enable()
    return times


def _back_to_back(world: World, peer: Peer, buffers: Buffers, call: Call, once_seconds: float) -> float:
    """Microseconds an operation in loops of BACK_TO_BACK calls with no barrier between; median of the slowest rank."""
    loops = int(max(1, min(20, 0.05 / max(once_seconds * BACK_TO_BACK, 1e-7))))
    buffers.full.fill(0)  # sums in place stay zero
    times = np.zeros(loops, np.float64)
    for i in range(loops):
        peer.barrier()
        started = time.perf_counter_ns()
        for _ in range(BACK_TO_BACK):
            call()
        times[i] = (time.perf_counter_ns() - started) / BACK_TO_BACK
    return summarise(world.maximum(times).tolist()).median_us
