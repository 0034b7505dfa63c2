"""The ``collectives`` command: ``info``, ``tune``, ``switch`` and ``bench``."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

import collectives


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; quiet where the reader of its output goes away (``| head``).

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit status; 128 + SIGPIPE, as a shell reports it, where the output was not read to its end.
    """
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not be tried again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _run(arguments: Sequence[str] | None) -> int:
    """Parse the arguments and do what they say; the exit status."""
    parser = argparse.ArgumentParser(prog="collectives", description=__doc__)
    parser.add_argument("--version", action="version", version=f"collectives {collectives.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="versions, host, cores, transports, and the table of dtypes")
    info.add_argument("--json", action="store_true", help="for programs")
    info.add_argument(
        "--plan",
        nargs=2,
        metavar=("COLLECTIVE", "SIZE"),
        help="instead: which algorithms a call would take here, such as `--plan all_reduce 4MiB`; the size is that of "
        "the whole vector (the output of all_gather and gather, the input of the others)",
    )
    info.add_argument(
        "--ranks",
        type=int,
        default=None,
        help="with --plan: on how many ranks (1 to 64; default 2); not where a launcher started the command: then "
        "all of the job's, on all its hosts",
    )
    info.add_argument("--dtype", default="float32", help="with --plan: the elements (default float32)")
    info.add_argument("--op", default="sum", help="with --plan: the reduce operation (default sum)")
    tune = commands.add_parser(
        "tune",
        help="between hosts: time every algorithm and keep the result for later jobs whose ranks lie so; started by a "
        "launcher, such as `torchrun --nnodes 2 --nproc-per-node 1 --no-python collectives tune`",
    )
    tune.add_argument("--max-size", default="16MiB", help="the largest message that is timed (default 16MiB)")
    commands.add_parser(
        "bench",
        help="measure this library against its peers; the arguments are those of bench/run.py",
        add_help=False,
    )
    commands.add_parser(
        "switch",
        help="run the switch that adds up the ranks' vectors in the network, or ask one for its status; "
        "`collectives switch --help` lists the options",
        add_help=False,
    )
    known, rest = parser.parse_known_args(arguments)
    if known.command == "bench":
        return run_bench(rest)
    if known.command == "switch":
        from collectives.switch import command

        return command.main(rest)
    from collectives import _plan

    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if known.command == "tune":
        return tune_links(known, parser.error)
    if known.plan is not None:
        return show_plan(known, parser.error)
    facts = gather_facts()
    if (job := _plan.launched()) is not None and job[1] > 1:
        try:
            facts["job"] = _plan.describe_job()
        except (collectives.CollectivesError, RuntimeError) as error:
            print(f"collectives info: {error}", file=sys.stderr)
            return 1
        if job[0] != 0:
            return 0
    print(json.dumps(facts, indent=2) if known.json else format_facts(facts))
    return 0


def gather_facts() -> dict[str, Any]:
    """Collect what ``collectives info`` shows; nothing is started for it.

    Returns
    -------
    dict
        Of plain values, as ``--json`` prints them.
    """
    from collectives import _core

    library = _core.library_info()
    return {
        "collectives": library["version"],
        "torch": {"installed": torch.__version__, "compiled against": library["torch_version"]},
        "numpy": _numpy_version(),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": {"usable": len(os.sched_getaffinity(0)), "online": os.cpu_count()},
        "simd": {"used": library["simd_target"], "possible": library["simd_targets"]},
        "transports": library["transports"],
        "dtypes": {name: {"bytes": size, "ops": ops} for name, size, ops in _core.dtype_table()},
    }


def format_facts(facts: dict[str, Any]) -> str:
    """Lay out the facts for people: one line each, then the table of dtypes and reduce operations."""
    lines = [
        f"collectives  {facts['collectives']}",
        f"torch        {facts['torch']['installed']} (compiled against {facts['torch']['compiled against']})",
        f"numpy        {facts['numpy']}",
        f"python       {facts['python']}",
        f"host         {facts['host']} ({facts['system']})",
        f"cores        {facts['cores']['usable']} usable of {facts['cores']['online']}",
        f"simd         {facts['simd']['used']} (possible here: {', '.join(facts['simd']['possible'])})",
        f"transports   {', '.join(facts['transports'])}",
    ]
    if (job := facts.get("job")) is not None:
        for name, ranks in job["hosts"].items():
            lines.append(f"on {name:<9} {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}")
        lines.append(f"runs on      {job['group']}")
    lines.append("")
    ops = sorted({op for row in facts["dtypes"].values() for op in row["ops"]}, key=_first_seen(facts))
    lines.append(f"{'dtype':<15}{'bytes':>5}  " + "  ".join(ops))
    for name, row in facts["dtypes"].items():
        marks = "  ".join(("yes" if op in row["ops"] else "-").ljust(len(op)) for op in ops)
        lines.append(f"{name:<15}{row['bytes']:>5}  {marks}".rstrip())
    return "\n".join(lines)


def show_plan(options: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> int:
    """Print which algorithms a call would take on this machine.

    Parameters
    ----------
    options : argparse.Namespace
        plan (collective, size), ranks, dtype, op, json.
    refuse : callable
        Ends the command with a message when they make no sense.
    """
    from collectives import _core, _plan, testing

    collective, size = options.plan
    element_bytes = {name: width for name, width, _ in _core.dtype_table()}
    known = _core.library_info()["collectives"]
    if collective not in known:
        refuse(f"--plan: no collective is named {collective!r}; there are {', '.join(known)}")
    if options.dtype not in element_bytes:
        refuse(f"--dtype: none is named {options.dtype!r}; there are {', '.join(element_bytes)}")
    job = _plan.launched()
    if job is not None and options.ranks not in (None, job[1]):
        refuse(f"--ranks: {options.ranks}, but a launcher started {job[1]} ranks: leave it out")
    ranks = job[1] if job is not None else 2 if options.ranks is None else options.ranks
    if job is None and not 1 <= ranks <= 64:
        refuse(f"--ranks: {ranks} is not within 1 to 64")
    try:
        size_bytes = _plan.parse_size(size)
        count = _plan.count_of(collective, size_bytes, element_bytes[options.dtype], ranks)
    except ValueError as error:
        refuse(f"--plan {collective} {size}: {error}")
    try:
        if job is not None:
            answer = _plan.ask_job(collective, count, options.dtype, options.op)
            if job[0] != 0:
                return 0
        else:
            answer = _plan.ask(collective, count, options.dtype, options.op, ranks)
    except testing.RanksFailed as error:
        reasons = [str(reason) for reason in error.errors.values() if reason is not None]
        print(f"collectives info --plan: {reasons[0] if reasons else error}", file=sys.stderr)
        return 1
    print(json.dumps(answer, indent=2) if options.json else f"{answer['plan']}\n{answer['group']}")
    return 0


def tune_links(options: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> int:
    """Time the algorithms between the hosts of the job that this process is a rank of.

    Parameters
    ----------
    options : argparse.Namespace
        max_size.
    refuse : callable
        Ends the command with a message when it makes no sense.
    """
    from collectives import _plan

    try:
        max_bytes = _plan.parse_size(options.max_size)
    except ValueError as error:
        refuse(f"--max-size {options.max_size}: {error}")
    if not 8 <= max_bytes <= 1 << 32:
        refuse(f"--max-size: {options.max_size} is not within 8 to 4GiB")
    if _plan.launched() is None:
        refuse(
            "tune is a rank of a job: start it on every host with a launcher, such as "
            "`torchrun --nnodes 2 --nproc-per-node 1 --rdzv-endpoint HOST:29500 --no-python collectives tune`"
        )
    try:
        report = _plan.tune_job(max_bytes)
    except (collectives.CollectivesError, RuntimeError) as error:
        print(f"collectives tune: {error}", file=sys.stderr)
        return 1
    if report is not None:
        print(report)
    return 0


def _first_seen(facts: dict[str, Any]) -> Any:
    """Order operations as the library's own table does: by the longest rows first."""
    order: list[str] = []
    for row in sorted(facts["dtypes"].values(), key=lambda row: -len(row["ops"])):
        order += [op for op in row["ops"] if op not in order]
    return order.index


def _numpy_version() -> str:
    import numpy

    return numpy.__version__


def run_bench(arguments: Sequence[str]) -> int:
    """Run ``bench/run.py`` of the checkout that this package lies in.

    The benchmark is not part of the installed package: it needs its peers (gloo, MPI) and the checkout's own cases.
    """
    script = pathlib.Path(__file__).resolve().parent.parent / "bench" / "run.py"
    if not script.is_file():
        print(
            f"collectives bench: {script} is not there: the benchmark comes with the source, not with the installed "
            "package. Run it in a checkout: `mpirun -n 2 python bench/run.py` or "
            "`torchrun --nproc-per-node 2 bench/run.py`.",
            file=sys.stderr,
        )
        return 2
    return subprocess.run([sys.executable, str(script), *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
