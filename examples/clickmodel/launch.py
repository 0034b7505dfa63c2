"""Starts the ranks as fresh processes, shows how far they are, and reports the one that failed.

Called by ``examples/movielens.py``. torchrun would do as well; starting the ranks here keeps the main job one command.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch.multiprocessing as mp

from .worker import Job, Progress, run_rank

POLL_S = 0.2  # the parent shares the cores with the ranks, so it looks rarely
PLAIN_INTERVAL_S = 2.0
Show = Callable[[Progress], None]


class RankFailed(RuntimeError):
    """A rank raised or was killed; the message holds its traceback."""


def run_job(job: Job, labels: list[str], target: Callable[..., None] = run_rank) -> None:
    """Run all ranks to the end.

    Parameters
    ----------
    job : Job
    labels : list of str
        What to call each backend in the progress display.
    target : callable
        ``target(rank, job, connection)``, run in each process.

    Raises
    ------
    RankFailed
        One rank failed; the others have been ended.
    """
    receiver, sender = mp.Pipe(duplex=False)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # "spawn" gives each rank a fresh interpreter: a fork would inherit threads and locks of torch half-way.
    context = mp.start_processes(target, args=(job, sender), nprocs=job.ranks, join=False, start_method="spawn")
    assert context is not None  # join=False returns the context
    # Without our own copy of the sending end, the pipe reads as closed as soon as the last rank has gone.
    sender.close()
    try:
        with _display(labels) as show:
            while not context.join(timeout=0):
                _pump(receiver, show)
            _pump(receiver, show)
    except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
        raise RankFailed(f"rank {error.error_index} of {job.ranks} failed\n{str(error).strip()}") from None
    finally:
        for process in context.processes:
            if process.is_alive():
                process.terminate()
        receiver.close()


def _pump(receiver: Connection, show: Show) -> None:
    """Show what has arrived; waits at most `POLL_S` for it."""
    try:
        if receiver.poll(POLL_S):
            while receiver.poll(0):
                show(receiver.recv())
    except (EOFError, OSError):
        time.sleep(POLL_S)  # all ranks have closed their end; join() tells how they ended


@contextmanager
def _display(labels: list[str]) -> Iterator[Show]:
    """A bar for each backend when rich is installed and the output is a terminal; a line now and then otherwise."""
    rich_progress = _import_rich() if sys.stderr.isatty() else None
    if rich_progress is None:
        yield _plain(labels)
        return
    columns = (
        rich_progress.TextColumn("[bold]{task.description}"),
        rich_progress.BarColumn(bar_width=40),
        rich_progress.TextColumn("epoch {task.fields[epoch]}  step {task.completed:.0f}/{task.total:.0f}"),
        rich_progress.TextColumn("loss {task.fields[loss]}"),
        rich_progress.TimeElapsedColumn(),
    )
    console = _stderr_console()
    with rich_progress.Progress(*columns, console=console, refresh_per_second=4) as bars:
        width = max(map(len, labels))
        tasks = [bars.add_task(label.ljust(width), total=1, epoch="-", loss="-") for label in labels]

        def show(news: Progress) -> None:
            bars.update(
                tasks[news.backend], total=news.steps, completed=news.step, epoch=news.epoch, loss=f"{news.loss:.4f}"
            )

        yield show


def _plain(labels: list[str]) -> Show:
    last_s = [time.monotonic() - PLAIN_INTERVAL_S] * len(labels)

    def show(news: Progress) -> None:
        now_s = time.monotonic()
        if now_s - last_s[news.backend] >= PLAIN_INTERVAL_S or news.step == news.steps:
            last_s[news.backend] = now_s
            steps = f"epoch {news.epoch}, step {news.step}/{news.steps}"
            print(f"{labels[news.backend]:>12}: {steps}, loss {news.loss:.4f}", file=sys.stderr, flush=True)

    return show


def _import_rich() -> Any | None:
    try:
        import rich.progress
    except ImportError:
        return None
    return rich.progress


def _stderr_console() -> Any:
    """Console of rich on stderr, so that stdout carries the table alone."""
    import rich.console

    return rich.console.Console(stderr=True)
