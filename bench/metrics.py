"""Figures from raw times: medians, percentiles, algbw, busbw, ratios between peers. Pure functions, no I/O.

Used by measure.py, report.py, compare.py and targets.py; includes nothing of the benchmark.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# A flag's round trip between the two cores below this is "near" (one cache complex), else "far": measured values lie
# around 80 ns and 300 to 500 ns, with nothing between.
NEAR_BELOW_NS = 200.0


@dataclass(frozen=True)
class Summary:
    """Median and 95th percentile, in microseconds, of one block of iterations."""

    median_us: float
    p95_us: float
    iterations: int


def summarise(times_ns: Sequence[float]) -> Summary:
    """Summarise per-iteration times of the slowest rank.

    Parameters
    ----------
    times_ns : sequence of float
        One time an iteration, nanoseconds, already the maximum over the ranks.

    Raises
    ------
    ValueError
        When there is no time at all.
    """
    if not len(times_ns):
        raise ValueError("no iteration was timed: nothing to summarise")
    ordered = sorted(float(t) for t in times_ns)
    rank_95 = min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)
    return Summary(statistics.median(ordered) / 1e3, ordered[rank_95] / 1e3, len(ordered))


def algorithm_bandwidth_gbps(size_bytes: int, time_us: float) -> float:
    """Bytes of the operation over its time, GB/s (1e9 bytes)."""
    return size_bytes / time_us / 1e3 if time_us > 0 else 0.0


def bus_factor(kind: str, ranks: int) -> float:
    """What algbw is multiplied by to compare with the hardware: `kind` is a row's `bus` in cases.py.

    `reduce_and_gather`: 2(n-1)/n (all_reduce); `part`: (n-1)/n (reduce_scatter, all_gather, all_to_all);
    `whole`: 1 (broadcast); `none`: 0 (barrier).
    """
    factors = {"reduce_and_gather": 2 * (ranks - 1) / ranks, "part": (ranks - 1) / ranks, "whole": 1.0, "none": 0.0}
    return factors[kind]


def median_ratio(theirs: Iterable[float], ours: Iterable[float]) -> float:
    """Median over rounds of theirs / ours: above 1 means that ours is faster. Rounds are paired, NaN without any."""
    ratios = [t / o for t, o in zip(theirs, ours, strict=True) if o > 0]
    return statistics.median(ratios) if ratios else math.nan


def mode_of(round_trip_ns: float | None) -> str:
    """`near`, `far`, or `unknown` where the round trip was not measured."""
    if round_trip_ns is None:
        return "unknown"
    return "near" if round_trip_ns < NEAR_BELOW_NS else "far"


def mode_between(before_ns: float | None, after_ns: float | None) -> str:
    """Mode of a round measured before and after it: `changed` where the two disagree."""
    before, after = mode_of(before_ns), mode_of(after_ns)
    return before if before == after else "changed"
