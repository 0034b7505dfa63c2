"""torch's own distributed_test on the backend that the environment names, one JSON line a test on standard output.

Run by ``run_distributed_test.py`` and ``test_torch_suite.py`` as a process of its own, because the torch module reads
BACKEND, WORLD_SIZE and TEMP_DIR when it is imported::

    BACKEND=collectives WORLD_SIZE=3 TEMP_DIR=/tmp/x python torch_suite.py test_broadcast test_barrier

With PRESENT_AS=gloo (and BACKEND=gloo) every gloo group that a rank makes is one of this library's: it reaches the
tests that are skipped for any backend by another name. Without names it runs every test. The ranks of a test are forked
from this process, which has imported torch and done nothing else, so that a test takes a tenth of what it takes when
every rank imports torch anew.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import unittest

import torch
import torch.distributed as dist
import torch.testing._internal.common_distributed as common

import collectives

BACKEND = os.environ["BACKEND"]
IS_OURS = BACKEND == collectives._torch_entry.BACKEND

if IS_OURS:  # what torch's suite has to be told about a backend it does not know
    for feature in ("ddp", "plugin", "subgroup"):
        common.DistTestCases.backend_feature[feature].add(BACKEND)

import torch.testing._internal.distributed.distributed_test as suite

if IS_OURS:
    suite.PROFILING_SUPPORTED_BACKENDS.append(BACKEND)
    suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(BACKEND)


class _Gloo(type):
    """Stands in for ProcessGroupGloo in torch's Python: makes this library's backend, and takes it for gloo's."""

    def __call__(cls, store, rank: int, size: int, timeout):
        from collectives.backend import _create_backend

        return _create_backend(store, rank, size, timeout, "gloo", [], None)

    def __instancecheck__(cls, backend: object) -> bool:
        from collectives.backend import C10dBackend

        return isinstance(backend, C10dBackend)


if os.environ.get("PRESENT_AS") == "gloo":
    dist.distributed_c10d.ProcessGroupGloo = _Gloo("ProcessGroupGloo", (), {})
    # The profiler's ranges carry our own name.
    suite.PROFILING_SUPPORTED_BACKENDS.clear()
    suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """Every test of torch's suite."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


# Every rank names its class by this module; inherited loaders must not find the bases again.
TorchSuite.__module__ = __name__


class _Lines(unittest.TestResult):
    """Writes one line a test: name, result, seconds, and the reason or the traceback."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.began = time.monotonic()
        self.reported = False

    def _line(self, test: unittest.TestCase, result: str, why: str = "") -> None:
        if self.reported:
            return
        self.reported = True
        name = test.id().rsplit(".", 1)[-1]
        line = {"test": name, "result": result, "seconds": round(time.monotonic() - self.began, 2), "why": why}
        print(json.dumps(line), file=_out, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._line(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._line(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err) -> None:
        self._line(test, "failed", "".join(traceback.format_exception(*err)))

    addError = addFailure

    def addExpectedFailure(self, test: unittest.TestCase, err) -> None:
        self._line(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._line(test, "failed", "passed, though it is marked as failing")


def names() -> list[str]:
    """Return the names of all tests, sorted."""
    return sorted(unittest.TestLoader().getTestCaseNames(TorchSuite))


if __name__ == "__main__":
    # What tests and their ranks print goes to standard error; standard output is for the lines alone.
    _out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    assert dist.is_available()
    wanted = sys.argv[1:] or names()
    unknown = set(wanted) - set(names())
    if unknown:
        sys.exit(f"torch {torch.__version__} has no test named {', '.join(sorted(unknown))}")
    unittest.TestSuite(TorchSuite(name) for name in wanted).run(_Lines())
