"""Collectives between hosts against iperf3, gloo and Open MPI, on a rig of network namespaces. Needs root.

    python bench/hosts.py --json hosts.json --markdown hosts.md
    python bench/hosts.py --rows links-2,small --rounds 3
    python bench/hosts.py --rows links-2 --rounds 1 --append --json hosts.json       (one round more of one row)
    python bench/hosts.py --from hosts.json --markdown hosts.md        (judge and render again, nothing measured)

An entry point; includes hosts_rows.py, hosts_ranks.py, hosts_report.py, machine.py, metrics.py, probe.py and the rig of
tests/hosts. Method: bench/README.md. Exit status: 0, 1 when a row failed to run or gave a wrong result, 2 when nothing
could start, 3 when a target was missed (only with --strict), 130 after Ctrl-C (finished rows are in the JSON).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Last, so that an installed package is never shadowed by the source tree.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench import hosts_report, hosts_rows, machine, metrics, probe
from bench.hosts_rows import Row

CONGESTION = "reno"  # one for everybody, and every kernel has it
STREAMS = 1  # of the library (COLLECTIVES_STREAMS) and of iperf3
QUICK_BYTES = 4 << 20
TUNE_BYTES, QUICK_TUNE_BYTES = 16 << 20, 1 << 20


def build_parser() -> argparse.ArgumentParser:
    """The parser of hosts.py."""
    names = ",".join(row.name for row in hosts_rows.ROWS)
    parser = argparse.ArgumentParser(prog="bench/hosts.py", description="Collectives between hosts. Needs root.")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds over all rows (default 5)")
    parser.add_argument("--rows", default=None, metavar="NAME,...", help=f"of {names} (default all)")
    parser.add_argument("--quick", action="store_true", help="a look: shorter blocks, sizes of 4 MiB for 64 MiB")
    parser.add_argument("--json", dest="json_path", type=Path, default=None, help="write there after every row")
    parser.add_argument("--append", action="store_true", help="add the rounds to the --json file, if it exists")
    parser.add_argument("--markdown", dest="markdown_path", type=Path, default=None, help="write the tables there")
    parser.add_argument("--from", dest="source", type=Path, default=None, help="judge a document, measure nothing")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one row of one round (default 300)")
    parser.add_argument("--strict", action="store_true", help="exit with 3 when a target is missed")
    return parser


def iperf(hosts: Any, quick: bool) -> dict[str, list[float]]:
    """Bits per second that TCP gets from host 0 to host 1: alone, and both ways at once (mean direction)."""
    from tests.hosts import goodput

    found: dict[str, list[float]] = {"one_way": [], "both": []}
    seconds, times = (1, 1) if quick else (2, 2)
    for _ in range(times):
        options = [f"--congestion={CONGESTION}"]
        found["one_way"].append(goodput(hosts, 0, 1, streams=STREAMS, seconds=seconds, options=options))
        found["both"].append(_both_ways(hosts, seconds))
    return found


def _both_ways(hosts: Any, seconds: int) -> float:
    from tests.hosts import wait_until
    from tests.hosts.launch import listens

    server = hosts.run(1, ["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(hosts, 1, 5201), 10, "iperf3's server")
        command = ["iperf3", "--client", hosts.address(1), f"--parallel={STREAMS}", f"--time={seconds}", "--json"]
        text = hosts.check_output(0, [*command, "--bidir", f"--congestion={CONGESTION}"], timeout=seconds + 20)
        server.wait(10)
    finally:
        server.kill()
        server.wait()
    return each_way(json.loads(text)["end"])


def each_way(end: dict[str, Any]) -> float:
    """Bits per second of the mean direction of a --bidir run.

    Not of the slower one: what one direction loses of two cores the other gains, at random (of five runs on links that
    are not shaped 14 to 32 Gbit/s, their means 32.2 to 33.7), and the slower one would flatter what is judged by it.
    """
    return (end["sum_received"]["bits_per_second"] + end["sum_received_bidir_reverse"]["bits_per_second"]) / 2


def measure_row(row: Row, index: int, quick: bool, timeout: float) -> dict[str, Any]:
    """A row in one round: its cells, and before and after them the bound on the same rig and the mode of the cores.

    `busy` is what others used of the processor before the row, `others` during its parts (cells, before, after).
    """
    from tests.hosts import Hosts

    sample: dict[str, Any] = {"row": row.name, "round": index, "busy": machine.busy_fraction(0.5)}
    trips = [_round_trip()]
    with Hosts(row.hosts, rate=row.rate, congestion=CONGESTION) as hosts:
        others = machine.Others()
        sample["others"] = {}
        if row.bound:
            sample["iperf"] = {"before": iperf(hosts, quick)}
            sample["others"]["before"] = others.lap()
        sample |= _KINDS[row.kind](row, hosts, sample, index, quick, timeout)
        sample["others"]["cells"] = others.lap()
        if row.bound:
            sample["iperf"]["after"] = iperf(hosts, quick)
            sample["others"]["after"] = others.lap()
    trips.append(_round_trip())
    reasons = [each for each in trips if isinstance(each, str)]
    times = [None if isinstance(each, str) else each for each in trips]
    sample["cores"] = {"round_trip_ns": times, "mode": metrics.mode_between(*times)}
    return sample | ({"no_mode": reasons[0]} if reasons else {})


def _round_trip() -> float | str | None:
    """Of a flag between two cores, ns; or why it was not measured. None with one core."""
    try:
        return probe.run(probe.cores_of_host()).round_trip_ns
    except probe.ProbeError as error:
        return str(error)


def _on_ranks(row: Row, hosts: Any, timeout: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """What rank 0 returned."""
    from tests.hosts import run_ranks_on_hosts

    environment = {"OMP_NUM_THREADS": "1", "COLLECTIVES_STREAMS": str(STREAMS)}
    options: dict[str, Any] = {"timeout": timeout, "backend": None, "env": environment}
    return run_ranks_on_hosts(function, hosts, row.ranks, *arguments, **options)[0]


def _sweep(row: Row, hosts: Any, sample: dict[str, Any], index: int, quick: bool, timeout: float) -> dict[str, Any]:
    from bench import hosts_ranks

    sizes = tuple(sorted(min(size, QUICK_BYTES) if quick else size for size in (*row.sizes, *row.informs)))
    seconds = 0.05 if quick else 0.3
    cells = _on_ranks(row, hosts, timeout, hosts_ranks.sweep, row.ops, sizes, seconds, index)
    if row.mpi:
        for cell, added in zip(cells, _open_mpi(hosts, sizes, seconds, timeout), strict=True):
            cell |= added
    return {"cells": cells}


def _open_mpi(hosts: Any, sizes: Sequence[int], seconds: float, timeout: float) -> list[dict[str, Any]]:
    """Cells of the core and of Open MPI over tcp in the same processes; of two settings the one better for MPI."""
    from tests.hosts import mpirun

    best: list[dict[str, Any]] = []
    for name, added in (("plain", []), ("yields", ["--mca", "mpi_yield_when_idle", "1"])):
        cells = []
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "run.json"
            program = [sys.executable, str(Path(__file__).with_name("run.py")), "--peers", "core,mpi", "--rounds", "1"]
            program += ["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(sizes[1] // sizes[0]), "--no-probe"]
            program += ["--ops", "all_reduce", "--pin", "none", "--seconds", str(seconds), "--json", str(written)]
            options = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0"]
            environment = {"OMP_NUM_THREADS": "1", "COLLECTIVES_STREAMS": str(STREAMS)}
            mpirun(hosts, 1, program, options=[*options, *added], env=environment, timeout=timeout)
            results = json.loads(written.read_text())["results"]
        for core, mpi in zip(results[::2], results[1::2], strict=True):
            cells.append({"core": core, "mpi": mpi | {"setting": name}})
        better = [
            one
            if "median_us" not in two["mpi"] or one["mpi"].get("median_us", 1e99) <= two["mpi"]["median_us"]
            else two
            for one, two in zip(best or cells, cells, strict=True)
        ]
        best = better
    return best


def _ddp(row: Row, hosts: Any, sample: dict[str, Any], index: int, quick: bool, timeout: float) -> dict[str, Any]:
    from bench import hosts_ranks

    model_bytes = 4 * hosts_ranks.LAYERS * hosts_ranks.WIDTH * (hosts_ranks.WIDTH + 1)
    exchange_s = hosts_rows.exchange_s(row, model_bytes, hosts_rows.bounds([sample])["one_way"])
    return {
        "ddp": _on_ranks(row, hosts, timeout, hosts_ranks.ddp, exchange_s, 2 if quick else 5, index, max(row.sizes))
    }


def _planner(row: Row, hosts: Any, sample: dict[str, Any], index: int, quick: bool, timeout: float) -> dict[str, Any]:
    from bench import hosts_ranks

    sizes = tuple(size for size in row.sizes if size <= QUICK_BYTES) if quick else row.sizes
    with tempfile.TemporaryDirectory() as cache:
        most = QUICK_TUNE_BYTES if quick else TUNE_BYTES
        return {"plans": _on_ranks(row, hosts, timeout, hosts_ranks.plan, sizes, 0.3, most, cache)}


_KINDS: dict[str, Callable[..., dict[str, Any]]] = {"sweep": _sweep, "ddp": _ddp, "planner": _planner}


def measure_all(
    rows: Sequence[Row],
    options: argparse.Namespace,
    say: Callable[[str], None],
    measure: Callable[[Row, int, bool, float], dict[str, Any]] = measure_row,
) -> dict[str, Any]:
    """All rounds: in each every row in turn, the order turning from round to round; kept after every row.

    Raises
    ------
    ValueError
        If there is a document to add to, which is none or was made in another way.
    """
    document = _started(rows, options)
    started = time.monotonic()
    for passed in range(options.rounds):
        turn = passed % len(rows)
        for row in [*rows[turn:], *rows[:turn]]:
            index = len(hosts_report.samples_of(document, row.name))  # of the row's own rounds, also of those before
            try:
                sample = measure(row, index, options.quick, options.timeout)
            except Exception as error:  # one row that fails must not take the others' figures with it
                sample = {"row": row.name, "round": index, "error": f"{type(error).__name__}: {error}"[:2000]}
            document["samples"].append(sample)
            how = "FAILED" if sample.get("error") else "done"
            before = f" (its {index + 1}. in the document)" if index != passed else ""
            say(f"round {passed + 1}/{options.rounds}{before}, {row.name}: {how}, {time.monotonic() - started:.0f} s")
            _keep(document, options.json_path)
    return document


def _started(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    """A document without samples of this run: a new one, or the one to add to."""
    document: dict[str, Any] = {
        "schema": hosts_report.SCHEMA,
        "machine": machine.describe(),
        "congestion": CONGESTION,
        "streams": STREAMS,
        "quick": options.quick,
        "rows": [row.name for row in rows],
        "samples": [],
    }
    if options.append and options.json_path.exists():
        return hosts_report.continued(json.loads(options.json_path.read_text()), document)
    return document


def _keep(document: dict[str, Any], path: Path | None) -> None:
    """Write the document, never half of it: whoever is interrupted has what was there before."""
    if path:
        written = path.with_name(f"{path.name}.{os.getpid()}.new")
        written.write_text(json.dumps(document, indent=1) + "\n")
        written.replace(path)


def main(arguments: Sequence[str]) -> int:
    """The exit status of the process."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    if options.append and (options.source or not options.json_path):
        parser.error("--append adds rounds to the document of --json FILE: give --json, and not --from")
    try:
        if options.source:
            document = json.loads(options.source.read_text())
            hosts_report.validate(document)
        else:
            from tests.hosts import why_not

            rows = hosts_rows.chosen(options.rows)
            if reason := why_not("iperf3"):
                raise OSError(f"no rig of hosts can be made here: {reason}")
            machine.adopt_orphans()  # whose time is the row's, not others'
            document = measure_all(rows, options, lambda text: print(text, file=sys.stderr, flush=True))
    except (ValueError, OSError) as error:
        print(f"bench/hosts.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = f"finished rows are in {options.json_path}" if options.json_path else "nothing was kept (no --json)"
        print(f"bench/hosts.py: interrupted; {kept}", file=sys.stderr)
        return 130
    text = hosts_report.markdown(document)
    print(text)
    if options.markdown_path:
        options.markdown_path.write_text(text)
    if hosts_report.broken(document):
        return 1
    return 3 if options.strict and not all(each.passed for each in hosts_report.judged(document)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
