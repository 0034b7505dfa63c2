"""Peers that cannot share a process, in one run: launches each in turn, round after round, and judges the targets.

    python bench/compare.py --ranks 2,4,8 --json compare.json --markdown compare.md
    python bench/compare.py --from compare.json --markdown compare.md         (judge and render again, no launch)

An entry point; includes launchers.py, comparison.py, targets.py, probe.py and machine.py. Each launch is run.py with
one round. Method: bench/README.md. Exit status: 0, 1 when a peer gave a wrong result or a launch failed, 3 when a
target failed (only with --strict), 2 when nothing could start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Last, so that an installed package is never shadowed by the source tree.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import cases, comparison, launchers, machine, probe, report, targets
from bench.options import parse_size

RUN = Path(__file__).with_name("run.py")
# The zero-copy peer has its bound in the torchrun launch; here it would blur what the core itself holds.
MPI_PEERS = "core,mpi"
TORCH_PEERS = "core,core_zero_copy,collectives,gloo"
TORCH = "torch"


def build_parser() -> argparse.ArgumentParser:
    """The parser of compare.py."""
    every_mpi = ",".join(row.name for row in launchers.IMPLEMENTATIONS)
    parser = argparse.ArgumentParser(prog="bench/compare.py", description="Every MPI and gloo against collectives.")
    parser.add_argument("--ranks", default="2,4,8", help="world sizes (default 2,4,8)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all launches (default 5)")
    parser.add_argument("--mpi", default=every_mpi, help=f"of {every_mpi}; empty for none")
    parser.add_argument("--no-torch", action="store_true", help="leave out the torchrun launch (gloo)")
    parser.add_argument("-b", "--min-bytes", type=parse_size, default=8)
    parser.add_argument("-e", "--max-bytes", type=parse_size, default=64 << 20)
    parser.add_argument("-f", "--factor", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.05, help="time for a block (default 0.05)")
    parser.add_argument("--ops", default=",".join(row.name for row in cases.OPERATIONS if row.sized))
    parser.add_argument("--mpi-root", type=Path, default=launchers.default_root(), help="where the MPI wheels are kept")
    parser.add_argument("--pin", choices=("auto", "cores", "none"), default="auto", help="as for run.py (default auto)")
    parser.add_argument("--wait-quiet", type=float, default=0, metavar="SECONDS", help="wait that long for a quiet CPU")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one launch (default 600)")
    parser.add_argument("--json", dest="json_path", type=Path, default=None, help="write the merged document there")
    parser.add_argument("--markdown", dest="markdown_path", type=Path, default=None, help="write the tables there")
    parser.add_argument("--from", dest="source", type=Path, default=None, help="judge a document, launch nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 3 when a target fails or was not measured")
    return parser


class Launch:
    """One way to start run.py: an MPI, or torchrun."""

    def __init__(
        self, name: str, peers: str, command: Callable[[int, bool, list[str]], tuple[list[str], dict[str, str]]]
    ):
        self.name, self.peers, self._command = name, peers, command

    def run(self, ranks: int, arguments: Sequence[str], timeout: float) -> dict[str, Any]:
        """run.py's document.

        Raises
        ------
        RuntimeError
            When the launch failed, timed out or wrote no document; a wrong result is no failure of the launch.
        """
        pinned = ranks <= len(probe.cores_of_host())
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "run.json"
            program = [str(RUN), "--rounds", "1", "--peers", self.peers, "--json", str(written), *arguments]
            command, added = self._command(ranks, pinned, program)
            status, errors = _run_bounded(command, launchers.clean_environment() | added, timeout)
            if not written.exists():
                raise RuntimeError(f"status {status}: {errors.strip()[-500:] or 'no message'}")
            return json.loads(written.read_text())


def _run_bounded(command: Sequence[str], environment: dict[str, str], timeout: float) -> tuple[int | str, str]:
    """Run a launcher in a session of its own, and end all of it at the timeout."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        _, errors = process.communicate(timeout=timeout)
        return process.returncode, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, errors = process.communicate()
        return f"over {timeout:g} s", errors


def launches_of(options: argparse.Namespace) -> list[Launch]:
    """The launches asked for, each MPI installed.

    Raises
    ------
    LauncherError
        When an MPI cannot be installed: a comparison without it would claim too much.
    """
    names = [name for name in options.mpi.split(",") if name]
    found = [_mpi_launch(launchers.implementation(name), options.mpi_root) for name in names]
    if not options.no_torch:
        found.append(Launch(TORCH, TORCH_PEERS, lambda ranks, pinned, program: launchers.torch_command(ranks, program)))
    return found


def _mpi_launch(row: launchers.Implementation, root: Path) -> Launch:
    launchers.install(row, root)
    return Launch(
        row.name, MPI_PEERS, lambda ranks, pinned, program: launchers.mpi_command(row, root, ranks, pinned, program)
    )


def compare(options: argparse.Namespace, launches: Sequence[Launch], say: Callable[[str], None]) -> dict[str, Any]:
    """All rounds: for each world size every launch in turn, the order turning from round to round."""
    arguments = ["-b", str(options.min_bytes), "-e", str(options.max_bytes), "-f", str(options.factor)]
    arguments += ["--seconds", str(options.seconds), "--ops", options.ops, "--pin", options.pin]
    document: dict[str, Any] = {
        "schema": comparison.SCHEMA,
        "machine": machine.describe(),
        "launches": [launch.name for launch in launches],
        "mpi": [launch.name for launch in launches if launch.name != TORCH],
        "mpi_versions": {row.name: row.version for row in launchers.IMPLEMENTATIONS},
        "rounds": options.rounds,
        "pin": options.pin,
        "samples": [],
        "checks": [],
        "failures": [],
    }
    started = time.monotonic()
    for index in range(options.rounds):
        for ranks in (int(text) for text in options.ranks.split(",")):
            turn = index % max(1, len(launches))
            for launch in [*launches[turn:], *launches[:turn]]:
                _wait_until_quiet(options.wait_quiet)
                mode = _one(document, launch, index, ranks, arguments, options.timeout)
                passed = time.monotonic() - started
                say(f"round {index + 1}/{options.rounds}, {ranks} ranks, {launch.name}: {mode}, {passed:.0f} s")
        if options.json_path:  # after each round, so that a run that is cut short is not lost
            options.json_path.write_text(json.dumps(document | {"rounds": index + 1}, indent=1) + "\n")
    return document


def _wait_until_quiet(seconds: float) -> None:
    """Wait until other programs leave the CPU alone, or the seconds are over; the run records what it found."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and machine.busy_fraction(0.5) >= report.QUIET_BELOW:
        pass  # busy_fraction itself sleeps


def _one(
    document: dict[str, Any], launch: Launch, index: int, ranks: int, arguments: Sequence[str], timeout: float
) -> str:
    try:
        run = launch.run(ranks, arguments, timeout)
        document["samples"] += comparison.samples_of(run, launch.name, index)
        document["checks"].append({"round": index, "launch": launch.name, "ranks": ranks, **run["checks"]})
        return str(run["modes"][0]["mode"])
    except (RuntimeError, ValueError, OSError) as error:
        document["failures"].append({"round": index, "launch": launch.name, "ranks": ranks, "error": str(error)})
        return f"FAILED: {error}"


def wrong_results(document: dict[str, Any]) -> list[str]:
    """Every wrong result among the samples, for a person."""
    return [
        f"{sample['launch']}, {sample['ranks']} ranks, {sample['op']} {sample['bytes']} B, {peer}: {error}"
        for sample in document["samples"]
        for peer, error in sample["errors"].items()
        if error.startswith("wrong result")
    ]


def main(arguments: Sequence[str]) -> int:
    """The exit status of the process."""
    options = build_parser().parse_args(arguments)
    try:
        if options.source:
            document = json.loads(options.source.read_text())
            comparison.validate(document)
        else:
            document = compare(options, launches_of(options), lambda text: print(text, file=sys.stderr, flush=True))
    except (launchers.LauncherError, ValueError, OSError) as error:
        print(f"bench/compare.py: {error}", file=sys.stderr)
        return 2
    text = comparison.markdown(document)
    print(text)
    if options.markdown_path:
        options.markdown_path.write_text(text)
    wrong = wrong_results(document)
    for line in wrong:
        print(f"bench/compare.py: WRONG: {line}", file=sys.stderr)
    if wrong or document["failures"]:
        return 1
    judged = targets.verdicts(document["samples"], document["mpi"])
    worst = [(limit, limit.worst(document["checks"])) for limit in targets.LIMITS]
    missed = any(verdict.status != "pass" for verdict in judged)
    missed |= any(value is None or value > limit.most for limit, value in worst)
    return 3 if options.strict and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
