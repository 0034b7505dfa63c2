"""Builds and runs probe.cc: the cores' near/far mode and the machine's own bandwidth, for the figures' context.

Used by run.py and compare.py; includes metrics.py. Nothing here is silent: without a compiler the result says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_name("probe.cc")
_FLAGS = ("-O3", "-march=native", "-std=c++20", "-pthread")


class ProbeError(RuntimeError):
    """The probe could not be built or run; the message says why."""


@dataclass
class ProbeResult:
    """What the probe measured.

    Attributes
    ----------
    round_trip_ns : float or None
        A flag's round trip between the first two cores, None with one core
    copy_gbps_a_core : dict of size in bytes to GB/s
        Bytes read plus written by each core, all cores copying
    zero_copy_all_reduce_us : dict of size in bytes to microseconds
        The bare memory accesses of a zero-copy all_reduce, sizes from 1 MiB
    """

    round_trip_ns: float | None
    copy_gbps_a_core: dict[int, float] = field(default_factory=dict)
    zero_copy_all_reduce_us: dict[int, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The same with text keys."""
        return {
            "round_trip_ns": self.round_trip_ns,
            "copy_gbps_a_core": {str(k): v for k, v in self.copy_gbps_a_core.items()},
            "zero_copy_all_reduce_us": {str(k): v for k, v in self.zero_copy_all_reduce_us.items()},
        }


def cores_of_host() -> list[int]:
    """Every core that this host's processes may use: wider than the affinity of a rank that is pinned already."""
    try:
        text = Path("/proc/1/status").read_text()
        line = next(one for one in text.splitlines() if one.startswith("Cpus_allowed_list:"))
        allowed = _ranges(line.split(":")[1])
    except (OSError, StopIteration):
        allowed = set(range(os.cpu_count() or 1))
    return sorted(allowed & set(range(os.cpu_count() or 1))) or [0]


def _ranges(text: str) -> set[int]:
    """`0-2,5` as {0, 1, 2, 5}."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def build() -> Path:
    """The probe's program, compiled once a version of its source and kept in the user's cache.

    Raises
    ------
    ProbeError
        Without a C++20 compiler, or when it fails.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise ProbeError("no C++ compiler (c++, g++ or clang++): near/far mode and bandwidth were not measured")
    identity = hashlib.sha256(_SOURCE.read_bytes() + " ".join((compiler, *_FLAGS)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collectives"
    program = cache / f"probe-{identity}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / "probe"
        done = subprocess.run(
            [compiler, *_FLAGS, str(_SOURCE), "-o", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ProbeError(f"{compiler} could not build {_SOURCE.name}: {done.stderr.strip()[-400:]}")
        made.rename(program)  # atomic: another rank or run may be building too
    return program


def run(cores: Sequence[int], ranks: int = 2, sizes: Sequence[int] = ()) -> ProbeResult:
    """Measure on these cores; with no sizes only the round trip (a tenth of a second).

    Raises
    ------
    ProbeError
        When the program cannot be built or fails.
    """
    command = [str(build()), "--cores", ",".join(map(str, cores)), "--ranks", str(ranks)]
    if sizes:
        command += ["--sizes", ",".join(map(str, sizes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise ProbeError(f"the probe failed with status {done.returncode}: {done.stderr.strip()[-400:]}")
    measured = json.loads(done.stdout)
    return ProbeResult(
        measured["round_trip_ns"],
        {int(k): v for k, v in measured["copy_gbps_a_core"].items()},
        {int(k): v for k, v in measured["zero_copy_all_reduce_us"].items()},
    )
