"""Run torch's own distributed_test on gloo and on collectives, and write down every test's result on both.

``make test-torch`` calls it. Tests that gloo passes and that are skipped on any other name run a second time with
every gloo group replaced by one of collectives. It fails when a test that gloo passes does not pass in either way,
unless EXPLAINED says why. WORLD_SIZE is 3, as in torch's own runs. With --report the listing goes into
``docs/torch_suite.md``.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from typing import TextIO

HERE = pathlib.Path(__file__).resolve().parent
REPORT = HERE.parent.parent / "docs" / "torch_suite.md"
WORLD_SIZE = 3
TEST_TIMEOUT_S = 120  # of one test, all ranks

# Passed by gloo, not by collectives under any name, and why that is right.
EXPLAINED = {
    "test_ddp_logging_data_cpu": "torch's ProcessGroup calls every third-party backend `custom`, and under gloo's name "
    "the test looks for the number of gloo's threads",
    "test_monitored_barrier_gloo": "expects gloo's two different messages; here every rank raises the same "
    "list of ranks",
    "test_monitored_barrier_gloo_rank_0_timeout": "expects gloo's wording for a timeout of 0 s; here the ranks that "
    "did not come are named",
}

Result = dict[str, str]  # "result": passed, skipped or failed; "why"


def run(
    backend: str, names: list[str], log: TextIO, quiet: bool = False, present_as_gloo: bool = False
) -> dict[str, Result]:
    """Run tests on one backend.

    Parameters
    ----------
    backend : str
        Of every rank's process group.
    names : list of str
        The tests; empty: all.
    log : text file
        Takes what the ranks print.
    quiet : bool
        Print no line a test.
    present_as_gloo : bool
        Make every gloo group one of collectives'.

    Returns
    -------
    dict
        Test -> result, in alphabetical order.

    Raises
    ------
    RuntimeError
        If the process that runs the tests ended early.
    """
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="torch-suite-") as directory:
        environ = {
            **os.environ,
            "BACKEND": backend,
            "WORLD_SIZE": str(WORLD_SIZE),
            "TEMP_DIR": directory,
            "OMP_NUM_THREADS": "1",
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_TIMEOUT_S),
        }
        if present_as_gloo:
            environ["PRESENT_AS"] = "gloo"
        command = [sys.executable, str(HERE / "torch_suite.py"), *names]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            for text in process.stdout:
                line = json.loads(text)
                results[line["test"]] = line
                if not quiet:
                    print(f"{backend:12} {line['result']:8} {line['seconds']:6.1f} s  {line['test']}", flush=True)
    if process.returncode != 0:
        raise RuntimeError(f"the tests on {backend} ended with status {process.returncode} after {len(results)} tests")
    return results


def shorten(why: str) -> str:
    """Return the last line of a reason or traceback, for a table."""
    lines = [line for line in why.strip().splitlines() if line.strip()]
    return (lines[-1] if lines else "").replace("|", "\\|")[:140]


def behind(gloo: dict[str, Result], ours: dict[str, Result]) -> list[str]:
    """List the tests that gloo passes and that do not pass in ``ours``."""
    return [name for name in gloo if gloo[name]["result"] == "passed" and ours[name]["result"] != "passed"]


def count(results: dict[str, Result]) -> str:
    """Say how many tests passed, were skipped and failed."""
    counts = collections.Counter(result["result"] for result in results.values())
    return f"{counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed"


def report(gloo: dict[str, Result], ours: dict[str, Result], renamed: dict[str, Result], torch_version: str) -> str:
    """Return the page: counts, what is behind and ahead of gloo, and every test."""
    ahead = [n for n in ours if ours[n]["result"] == "passed" and gloo[n]["result"] != "passed"]
    late = behind({name: gloo[name] for name in renamed}, renamed)
    lines = [
        "# torch's own test suite",
        "",
        f"`torch.testing._internal.distributed.distributed_test` out of torch {torch_version}: {len(ours)} tests, on "
        f"{WORLD_SIZE} ranks, CPU only ({platform.machine()}, Linux). Written by `make test-torch`, which fails when "
        "a test that gloo passes is not passed here, the explained ones left out.",
        "",
        "| run | result |",
        "|---|---|",
        f"| gloo | {count(gloo)} |",
        f"| collectives | {count(ours)} |",
        f"| collectives under gloo's name, the {len(renamed)} tests that gloo passes and that are skipped otherwise "
        f"(or failed) | {count(renamed)} |",
        "",
        f"So of the {sum(r['result'] == 'passed' for r in gloo.values())} tests that gloo passes, collectives passes "
        f"{sum(r['result'] == 'passed' for r in gloo.values()) - len(late)}; "
        f"{len(ahead)} pass on collectives and not on gloo. Not passed:",
        "",
        *(f"- `{name}`: {EXPLAINED.get(name, 'NOT EXPLAINED')}." for name in late),
        "",
        "| test | gloo | collectives | under gloo's name | why not |",
        "|---|---|---|---|---|",
    ]
    for name, result in ours.items():
        why = "" if result["result"] == "passed" else shorten(result["why"])
        second = renamed[name]["result"] if name in renamed else ""
        lines.append(f"| `{name}` | {gloo[name]['result']} | {result['result']} | {second} | {why} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run gloo, collectives, and collectives under gloo's name; 1 when a test is behind gloo without a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="tests, all by default")
    parser.add_argument("--report", action="store_true", help=f"write {REPORT.name} (needs all tests)")
    parser.add_argument("--log", default=None, help="file for what the ranks print (default: a temporary one)")
    arguments = parser.parse_args()
    if arguments.report and arguments.names:
        parser.error("--report needs all tests: name none")
    log_path = arguments.log or os.path.join(tempfile.gettempdir(), "torch_suite.log")
    with open(log_path, "w") as log:
        gloo = run("gloo", arguments.names, log)
        ours = run("collectives", arguments.names, log)
        again = behind(gloo, ours)
        renamed = run("gloo", again, log, present_as_gloo=True) if again else {}
    late = [name for name in behind({name: gloo[name] for name in renamed}, renamed) if name not in EXPLAINED]
    print(f"\ngloo:              {count(gloo)}\ncollectives:       {count(ours)}\nunder gloo's name: {count(renamed)}")
    print(f"the ranks' output: {log_path}")
    for name in late:
        print(f"\nbehind gloo: {name}\n{renamed[name]['why']}")
    if arguments.report:
        import torch

        REPORT.write_text(report(gloo, ours, renamed, torch.__version__.partition("+")[0]))
        print(f"written: {REPORT}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
