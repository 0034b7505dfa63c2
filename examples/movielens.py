"""The main job: train a click model on MovieLens-100k with gloo and with collectives, in one run, and compare.

    python examples/movielens.py                     # both backends, 2 ranks, about half a minute
    python examples/movielens.py --backends gloo     # one alone
    python examples/movielens.py --help

Prints a table, writes a PNG, and exits with 0 only if the losses of the backends are equal to fp32 rounding, the
held-out AUC reaches its bound and collectives needs at most a fifth of gloo's communication time. Exit status: 1 when
one of these fails, 2 for bad arguments, 3 when a rank failed. How it measures is said in ``clickmodel/worker.py``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from clickmodel import data as movielens
from clickmodel import report, results, synthetic
from clickmodel.launch import RankFailed, run_job
from clickmodel.worker import SETTINGS, Job

# A short run says no more than that the model learns; smaller batches give it enough steps for that.
QUICK_AUC_BOUND = 0.6
QUICK_IMPRESSIONS = 20_000


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Command line, checked; exits with 2 and a message on a bad one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training impressions (default 3)")
    parser.add_argument("--ranks", type=int, default=2, help="processes, one thread each (default 2)")
    parser.add_argument("--backends", default="gloo,collectives", help="c10d backends, in order (default %(default)s)")
    parser.add_argument("--synthetic", action="store_true", help="use the seeded generator, download nothing")
    parser.add_argument("--seed", type=int, default=1, help="of the split, weights and order of the data (default 1)")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder of the PNG (default %(default)s)")
    parser.add_argument(
        "--max-comm-share",
        type=float,
        default=results.MAX_COMM_SHARE,
        metavar="X",
        help="fail if collectives takes more than X of gloo's communication time (default %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="one epoch on a fifth of the data; AUC bound 0.6")
    args = parser.parse_args(argv)
    args.backends = tuple(name.strip() for name in args.backends.split(",") if name.strip())
    if min(args.epochs, args.ranks) < 1:
        parser.error("--epochs and --ranks must be 1 or more")
    if args.seed < 0:
        parser.error("--seed must not be negative")
    if not args.backends:
        parser.error("--backends names none")
    if results.OURS in args.backends and importlib.util.find_spec(results.OURS) is None:
        parser.error(
            f"the collectives package is not installed in {sys.executable}: run 'make demo', or "
            "'pip install --no-build-isolation .' in the repository"
        )
    unknown = [name for name in args.backends if name != results.OURS and not dist.is_backend_available(name)]
    if unknown:
        parser.error(f"--backends: torch has no backend {', '.join(unknown)}")
    return args


def load_data(args: argparse.Namespace) -> movielens.ClickData:
    """MovieLens-100k, or the generator's data when asked for or when no index can be reached; says which."""
    if not args.synthetic:
        try:
            loaded = movielens.load_movielens()
            print(f"data: {movielens.LICENCE}")
            return loaded
        except movielens.IndexUnreachable as error:
            print(f"data: no package index can be reached ({error})")
            print("data: MovieLens-100k is not at hand, so the seeded generator takes its place", flush=True)
    generated = synthetic.generate(args.seed)
    print(
        f"data: {generated.name}, seed {args.seed}; the AUC bound is {generated.auc_bound:.4f}, "
        f"{synthetic.CEILING_SHARE:.0%} of the way from chance to what a perfect model reaches"
    )
    return generated


def shorten(loaded: movielens.ClickData) -> movielens.ClickData:
    """The first impressions only, for ``--quick``; both sources give them in random order."""
    fields = vars(loaded) | {"auc_bound": QUICK_AUC_BOUND}
    fields |= {name: fields[name][:QUICK_IMPRESSIONS] for name in ("user", "item", "clicked")}
    return movielens.ClickData(**fields)


def machine() -> str:
    """Processor, cores and torch, for the figure's caption."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass  # not Linux: the short name will do
    return f"{len(os.sched_getaffinity(0))} cores of {model}, torch {torch.__version__}"


def main(argv: list[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    args = parse_args(argv)
    try:
        loaded = load_data(args)
    except movielens.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.quick:
        loaded, args.epochs = shorten(loaded), 1
    labels = results.make_labels(args.backends)
    print(
        f"job:  {loaded.impressions:,} impressions, {loaded.users:,} users, {loaded.items:,} items; "
        f"{args.ranks} ranks, epochs: {args.epochs}, seed {args.seed}; {', '.join(labels)} taking turns"
    )
    settings = [f"{name}={os.environ.get(name, value)}" for name, value in SETTINGS.items()]
    print(f"env:  {' '.join(settings)}")
    print(f"on:   {machine()}", flush=True)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="collectives-demo-") as scratch:
        job = Job(args.backends, args.ranks, args.epochs, args.seed, Path(scratch) / "data.npz", Path(scratch))
        if args.quick:
            job = dataclasses.replace(job, batch=128, learning_rate=1e-2)
        loaded.save(job.data_path)
        try:
            run_job(job, labels)
        except RankFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 3
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        figures = results.load(job.run_dir, args.backends, args.ranks, warm_up=job.round_steps)
    print()
    print(report.table(figures))
    print(
        "Step and communication are medians over the steps; communication is the all_reduce of the gradients alone,\n"
        "the minimum over the ranks, as waiting for a late peer is not communication."
    )
    picture = args.out / "movielens.png"
    title = f"Click model on {loaded.name}: {' and '.join(labels)}"
    report.draw(figures, title, f"{args.ranks} ranks, seed {args.seed}, on {machine()}", picture)
    print(f"picture: {picture}   (the whole run took {time.monotonic() - started_s:.0f} s)")
    wrong = results.failures(figures, loaded.auc_bound, args.max_comm_share)
    for sentence in wrong:
        print(f"FAILED: {sentence}", file=sys.stderr)
    if not wrong:
        print(
            f"all well: losses equal, AUC at least {loaded.auc_bound:.2f}"
            + (
                f", communication within {args.max_comm_share:g} of gloo's"
                if {results.OURS, results.BASELINE} <= set(args.backends)
                else ""
            )
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
