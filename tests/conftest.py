"""Fixtures and rules of the whole suite: skips that name their reason, and a deadline on every test."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys

# Many ranks share few cores here; a thread pool a rank would measure the scheduler. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# In a container the tests run as root; Open MPI asks for this to be said twice.
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")

import pytest

# A suite that was started in the background of a shell ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_S = 120.0


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """Return the root of the checkout."""
    return ROOT


def _why_no_namespaces() -> str | None:
    """Say why this process cannot make network namespaces; None where it can."""
    if os.geteuid() != 0:
        return "needs root"
    result = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return None if result.returncode == 0 else f"cannot make a network namespace: {result.stderr.strip()}"


def _why_no_cuda() -> str | None:
    """Say why there is no CUDA here; None where there is."""
    import torch

    return None if torch.cuda.is_available() else "needs a CUDA GPU and a CUDA build of torch"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what this machine cannot run."""
    for mark in item.iter_markers("needs"):
        for module in mark.args:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"needs the Python package {module}")
    for mark in item.iter_markers("needs_command"):
        for program in mark.args:
            if shutil.which(program) is None:
                pytest.skip(f"needs the program {program} on PATH")
    if item.get_closest_marker("needs_root") and (reason := _why_no_namespaces()):
        pytest.skip(reason)
    if item.get_closest_marker("needs_cuda") and (reason := _why_no_cuda()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Fail a test that passes its deadline; end the run if it cannot even be interrupted."""
    mark = item.get_closest_marker("deadline")
    deadline_s = float(mark.args[0]) if mark else DEADLINE_S

    def expired(signum: int, frame: object) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        pytest.fail(f"still running after {deadline_s:g} s (mark it @pytest.mark.deadline(seconds) if it must)")

    previous = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    # A wait that ignores signals is a bug of ours, and would otherwise hang the run for ever.
    faulthandler.dump_traceback_later(2 * deadline_s + 30, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, previous)
