"""What the project promises of its speed, as a table, and its evaluation on the samples of compare.py.

Used by compare.py and comparison.py; includes metrics.py and report.py's size names. Adding a promise is one row.

A sample is one launch's figure of one (op, bytes): {round, launch, ranks, mode, op, bytes, times: {peer: us}, ...}.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench import report

NO_SLOWER = 0.97
# A figure that beats its own bound by more than noise shows a bad bound, and is no pass.
FASTER_THAN_BOUND = 1.05
KIB, MIB = 1 << 10, 1 << 20
FOUR = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
SUMS = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True)
class Target:
    """A row: `subject`'s time against `rival`, on these operations, ranks and sizes, in one mode of the cores or both.

    `rival` is `best_mpi` (the hardest to beat of every MPI launched), the name of a peer in the same process,
    `zero_copy_bound` (the bare memory accesses over the subject's time), or `added_us` (microseconds that `subject`
    takes more than `core`; here `needed` is a maximum). Else `needed` is the least ratio.
    """

    name: str
    what: str
    ops: tuple[str, ...]
    ranks: tuple[int, ...]
    first_bytes: int
    last_bytes: int
    subject: str
    rival: str
    needed: float
    mode: str | None = None

    def covers(self, sample: dict[str, Any]) -> bool:
        """True when the sample is one that the row speaks of."""
        return (
            sample["op"] in self.ops
            and sample["ranks"] in self.ranks
            and self.first_bytes <= sample["bytes"] <= self.last_bytes
            and (self.mode is None or self.mode == sample["mode"])
        )

    def met_by(self, value: float) -> bool:
        """True when the value reaches what is needed."""
        return value <= self.needed if self.rival == "added_us" else value >= self.needed


TARGETS: tuple[Target, ...] = (
    Target(
        "core-no-slower", "core, 2 ranks, every size: never slower than the best MPI",
        FOUR, (2,), 8, 64 * MIB, "core", "best_mpi", NO_SLOWER,
    ),
    Target(
        "core-small", "core, 2 ranks, up to 1 KiB: 1.5x the best MPI",
        FOUR, (2,), 8, KIB, "core", "best_mpi", 1.5,
    ),
    Target(
        "core-middle-far", "all_reduce, reduce_scatter, 512 KiB to 4 MiB, far: 3x the best MPI",
        SUMS, (2,), 512 * KIB, 4 * MIB, "core", "best_mpi", 3.0, "far",
    ),
    Target(
        "core-large", "all_reduce, reduce_scatter from 16 MiB, 2 ranks: 3x the best MPI",
        SUMS, (2,), 16 * MIB, 1 << 60, "core", "best_mpi", 3.0,
    ),
    Target(
        "core-many-no-slower", "core, 4 and 8 ranks, every size: never slower than the best MPI",
        FOUR, (4, 8), 8, 64 * MIB, "core", "best_mpi", NO_SLOWER,
    ),
    Target(
        "core-many-large", "all_reduce from 16 MiB, 4 and 8 ranks: 2.5x the best MPI",
        ("all_reduce",), (4, 8), 16 * MIB, 1 << 60, "core", "best_mpi", 2.5,
    ),
    Target(
        "torch-small", "dist.all_reduce, 2 ranks, up to 32 KiB: 30x gloo",
        ("all_reduce",), (2,), 8, 32 * KIB, "collectives", "gloo", 30.0,
    ),
    Target(
        "torch-2mib", "dist.all_reduce, 2 ranks, 2 MiB: 10x gloo",
        ("all_reduce",), (2,), 2 * MIB, 2 * MIB, "collectives", "gloo", 10.0,
    ),
    Target(
        "torch-64mib", "dist.all_reduce, 2 ranks, 64 MiB: 4x gloo",
        ("all_reduce",), (2,), 64 * MIB, 64 * MIB, "collectives", "gloo", 4.0,
    ),
    Target(
        "torch-call", "dist.all_reduce costs at most 5 us over the core",
        ("all_reduce",), (2,), 8, KIB, "collectives", "added_us", 5.0,
    ),
    Target(
        "zero-copy-bound", "zero-copy all_reduce of 64 MiB: 0.8 of the bound by bytes",
        ("all_reduce",), (2,), 64 * MIB, 64 * MIB, "core_zero_copy", "zero_copy_bound", 0.8,
    ),
    Target(
        "zero-copy-staged", "zero-copy all_reduce: never slower than staged",
        ("all_reduce",), (2,), 8, 64 * MIB, "core_zero_copy", "core", NO_SLOWER,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """A row on what the process holds or burns: no launch's `check` may exceed `most`; shown in `unit`s."""

    what: str
    check: str
    most: float
    unit: float

    def worst(self, checks: Iterable[dict[str, Any]]) -> float | None:
        """The largest value of any launch; None where none measured it."""
        return max((c[self.check] for c in checks if c.get(self.check) is not None), default=None)


LIMITS: tuple[Limit, ...] = (
    Limit("shared staging memory of the core, MiB a rank", "staging_bytes_a_rank", 4 * MIB, MIB),
    # 1 %: the interpreter's own threads wake now and then
    Limit("idle between operations, % of a core in the busiest rank", "idle_cpu_fraction", 0.01, 0.01),
)


@dataclass(frozen=True)
class Cell:
    """One (mode, ranks, op, bytes) of a target: its value, or the reason why there is none."""

    mode: str
    ranks: int
    op: str
    bytes: int
    value: float | None
    passed: bool
    reason: str = ""
    rival_us: float | None = None
    rival_name: str = ""

    @property
    def place(self) -> str:
        """Where this cell lies, for a person."""
        return f"{self.op} {report.size_text(self.bytes)}, {self.ranks} ranks, {self.mode}"


def rounds_ratio(samples: Iterable[dict[str, Any]], subject: str, rival: str) -> float | None:
    """Median over the samples with both peers of rival's time over subject's; None without any."""
    ratios = [s["times"][rival] / s["times"][subject] for s in samples if {rival, subject} <= s["times"].keys()]
    return statistics.median(ratios) if ratios else None


def best_mpi(
    samples: Sequence[dict[str, Any]], subject: str, launches: Sequence[str]
) -> tuple[float | None, str, float | None]:
    """The MPI hardest to beat: (ratio, its launch, its median us); (None, reason, None) when one was not measured.

    Each MPI is paired with the subject of its own processes, so that a change of the machine between launches does not
    favour either.
    """
    found = []
    for launch in launches:
        own = [s for s in samples if s["launch"] == launch and {"mpi", subject} <= s["times"].keys()]
        ratio = rounds_ratio(own, subject, "mpi")
        if ratio is None:
            return None, f"{subject} beside {launch}: {_why_absent(samples, launch, subject)}", None
        found.append((ratio, launch, statistics.median(s["times"]["mpi"] for s in own)))
    if not found:
        return None, "no MPI was launched", None
    return min(found)


def _why_absent(samples: Sequence[dict[str, Any]], launch: str, subject: str) -> str:
    errors = [s["errors"][p] for s in samples if s["launch"] == launch for p in ("mpi", subject) if p in s["errors"]]
    return errors[0] if errors else "not measured"


def evaluate(target: Target, samples: Sequence[dict[str, Any]], launches: Sequence[str]) -> list[Cell]:
    """Every cell that the target speaks of. Launches during which the mode changed belong to neither mode."""
    grouped: dict[tuple[str, int, str, int], list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        if target.covers(sample) and sample["mode"] != "changed":
            grouped[sample["mode"], sample["ranks"], sample["op"], sample["bytes"]].append(sample)
    return [_cell(target, key, group, launches) for key, group in sorted(grouped.items())]


def _cell(
    target: Target, key: tuple[str, int, str, int], group: Sequence[dict[str, Any]], launches: Sequence[str]
) -> Cell:
    value, name, rival_us = _value(target, group, launches)
    if value is None:
        return Cell(*key, None, False, reason=name)
    return Cell(*key, value, target.met_by(value), rival_us=rival_us, rival_name=name)


def _value(
    target: Target, group: Sequence[dict[str, Any]], launches: Sequence[str]
) -> tuple[float | None, str, float | None]:
    if target.rival == "best_mpi":
        return best_mpi(group, target.subject, launches)
    if target.rival == "zero_copy_bound":
        # What the machine can do is the best that it did in the whole run: the bare accesses move by a third from one
        # launch to the next, with the pages that they get.
        bounds = [s["zero_copy_bound_us"] for s in group if s.get("zero_copy_bound_us")]
        times = [s["times"][target.subject] for s in group if target.subject in s["times"]]
        if not bounds or not times:
            return None, f"{target.subject} or bound absent", None
        reached = min(bounds) / statistics.median(times)
        if reached > FASTER_THAN_BOUND:
            return None, f"{reached:.2f} of the bound: faster than it, so something disturbed its measurement", None
        return reached, "bound", None
    if target.rival == "added_us":
        added = [
            s["times"][target.subject] - s["times"]["core"]
            for s in group
            if {target.subject, "core"} <= s["times"].keys()
        ]
        return (statistics.median(added), "core", None) if added else (None, f"{target.subject} or core absent", None)
    ratio = rounds_ratio(group, target.subject, target.rival)
    if ratio is None:
        return None, f"{target.subject} or {target.rival} absent", None
    times = [s["times"][target.rival] for s in group if target.rival in s["times"]]
    return ratio, target.rival, statistics.median(times)


@dataclass(frozen=True)
class Verdict:
    """A target's cells and its verdict: `pass`, `fail`, or `not measured` when any of its cells has no value."""

    target: Target
    cells: list[Cell]

    @property
    def status(self) -> str:
        """`fail` beats `not measured`: one cell below is enough to know."""
        if any(cell.value is not None and not cell.passed for cell in self.cells):
            return "fail"
        if not self.cells or any(cell.value is None for cell in self.cells):
            return "not measured"
        return "pass"

    @property
    def worst(self) -> Cell | None:
        """The measured cell furthest from what is needed."""
        measured = [cell for cell in self.cells if cell.value is not None]
        pick = max if self.target.rival == "added_us" else min
        return pick(measured, key=lambda cell: cell.value or 0.0) if measured else None


def verdicts(samples: Sequence[dict[str, Any]], launches: Sequence[str]) -> list[Verdict]:
    """Every row of TARGETS evaluated."""
    return [Verdict(target, evaluate(target, samples, launches)) for target in TARGETS]
