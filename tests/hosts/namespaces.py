"""System calls on namespaces, and the removal of a rig's; used by the rig and, as a sibling script, by its keeper.

Only the standard library, and little of it: the keeper is to start in a few hundredths of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import time

# One folder a rig: its owner, its hosts' process ids. It exists before anything else of the rig, and goes last.
STATE = pathlib.Path("/run/collectives-hosts")
NAMED = pathlib.Path("/run/netns")  # where `ip netns` keeps its names
CONFIGURATION = pathlib.Path("/etc/netns")  # what `ip netns exec` lays over /etc
PREFIX = "clh-"

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWNET = 0x40000000
KINDS = {"net": CLONE_NEWNET, "uts": CLONE_NEWUTS, "mnt": CLONE_NEWNS}  # the mount namespace last: it takes /proc along
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 1 << 19
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
_KILL_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare() -> None:
    """Move this process into new network, UTS and mount namespaces."""
    _checked(_libc.unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS), "unshare(net, uts, mount)")


def enter(pid: int) -> None:
    """Move this process, which must have a single thread, into the namespaces of another; keep the directory.

    Raises
    ------
    OSError
        If the other is gone, or this process has threads or lacks the rights.
    """
    directory = os.getcwd()
    descriptors = {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in KINDS}
    for kind, descriptor in descriptors.items():
        _checked(_libc.setns(descriptor, KINDS[kind]), f"setns({kind} of process {pid})")
        os.close(descriptor)
    os.chdir(directory)  # setns to a mount namespace leads to its root


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """Mount; see mount(2)."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    _checked(
        _libc.mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode()), f"mount on {target}"
    )


def unmount(target: str) -> None:
    """Detach what is mounted there; nothing may be."""
    _libc.umount2(target.encode(), MNT_DETACH)


def die_with_parent() -> None:
    """Have this process killed when the thread that forked it ends."""
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def start_time(pid: int) -> str | None:
    """Return when a process began, in clock ticks since boot; None where there is none (a zombie counts as none).

    A process id alone is not an identity: ids come round again.
    """
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


# ---- removal ---------------------------------------------------------------------------------------------------------


def processes_in(names: list[pathlib.Path]) -> list[int]:
    """Return the processes in these named network namespaces."""
    inodes = set()
    for name in names:
        with contextlib.suppress(OSError):
            inodes.add(name.stat().st_ino)
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # ended meanwhile, or a zombie
                if os.stat(f"/proc/{entry}/ns/net").st_ino in inodes:
                    found.append(int(entry))
    return found


def remove(rig: str) -> None:
    """Kill every process on a rig's hosts, and remove all that the rig made; fine with a rig half made or half gone."""
    names = list(NAMED.glob(f"{rig}-*"))
    deadline_s = time.monotonic() + _KILL_S
    while (pids := processes_in(names)) and time.monotonic() < deadline_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    for name in names:
        unmount(str(name))
        name.unlink(missing_ok=True)
    for folder in CONFIGURATION.glob(f"{rig}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(STATE / rig, ignore_errors=True)
    for parent in (CONFIGURATION, STATE):
        with contextlib.suppress(OSError):  # others use it, or it never was
            parent.rmdir()


def abandoned() -> list[str]:
    """Return the rigs whose owner is gone, or that left something after their folder (a keeper killed at its work)."""
    rigs = {path.name for path in STATE.glob(f"{PREFIX}*")}
    for folder in (NAMED, CONFIGURATION):
        rigs |= {"-".join(path.name.split("-")[:3]) for path in folder.glob(f"{PREFIX}*")}
    return sorted(rig for rig in rigs if not _has_owner(rig))


def _has_owner(rig: str) -> bool:
    if not (STATE / rig).is_dir():
        return False
    pid = int(rig.split("-")[1])
    began = start_time(pid)
    try:
        return began is not None and began == (STATE / rig / "owner").read_text()
    except FileNotFoundError:
        return began is not None  # it is just being made
