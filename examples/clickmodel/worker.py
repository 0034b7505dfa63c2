"""What one rank does: train the same model once for each backend, in turns, and time every step.

All backends live in the same processes, each with its own process group, its own copy of the model (same seed) and the
same batches. They take turns of a few steps, and the order of the turns flips each round, so that whatever happens to
the machine meanwhile (another process, a core that clocks down, a thread that moves) falls on all alike.

What counts as communication time: from the call of a gradient bucket's all_reduce to its completion, on the thread
that trains, with nothing else for that thread to do. DDP would normally start the all_reduce asynchronously and wait
at the end of the backward pass; a backend could then look fast only because more of it was hidden behind computation,
or slow because its thread took the core from it. So the hook below blocks, for every backend alike. It costs no
overlap worth having here: the model's gradients fit DDP's first bucket, which is full only when the backward pass ends.
A rank that comes early also waits for the late one, which is not communication; `results` therefore takes the minimum
over the ranks for each step.

Called by ``launch`` in fresh processes. (No ``from __future__ import annotations`` here: DDP looks at the hook's
annotations and takes them only as types, not as strings.)
"""

import hashlib
import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .data import ClickData, Ints, split
from .metrics import auc
from .model import Batch, Batches, ClickModel

# What a user would set for such a job, each with its reason; a value already in the environment wins.
SETTINGS = {
    # DDP may take its gradient buckets from the backend's memory. collectives gives it shared memory, so that the
    # all_reduce moves no extra copy; gloo has no such memory, and nothing changes for it.
    "DDP_DISABLE_COMM_MEM": "0",
    # Two ranks are seldom in step to better than a tenth of a millisecond. A rank that slept meanwhile would have to
    # be woken first, and its peer would wait for that; as each rank has a core of its own, it may as well look on.
    "COLLECTIVES_SPIN_US": "500",
    # All ranks are on this host, so gloo needs no other interface, and a container's host name may not resolve.
    "GLOO_SOCKET_IFNAME": "lo",
}


@dataclass(frozen=True)
class Job:
    """All that a rank needs to know.

    Attributes
    ----------
    backends : tuple of str
        c10d backend names; one may occur twice, to compare it with itself.
    ranks, epochs, seed : int
    data_path, run_dir : Path
        A `ClickData` file; where the ranks meet and leave their results.
    batch : int
        Impressions in a step, over all ranks.
    round_steps : int
        Steps that a backend trains before it is the next one's turn.
    learning_rate, weight_decay : float
        AdamW's; the rate falls linearly to zero.
    timeout_s : float
        Of every collective.
    """

    backends: tuple[str, ...]
    ranks: int
    epochs: int
    seed: int
    data_path: Path
    run_dir: Path
    batch: int = 512
    round_steps: int = 13
    learning_rate: float = 3e-3
    weight_decay: float = 0.3
    timeout_s: float = 60.0


@dataclass(frozen=True)
class Progress:
    """Sent to the parent after each turn: which backend, its steps so far, their total, epoch from 1, last loss."""

    backend: int
    step: int
    steps: int
    epoch: int
    loss: float


class TimedAllReduce:
    """State of the DDP communication hook: sums the blocking all_reduce time of one step's buckets."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.step_ns = 0

    def take_step_ns(self) -> int:
        """Nanoseconds since the last call of this method."""
        taken, self.step_ns = self.step_ns, 0
        return taken


def timed_all_reduce(state: TimedAllReduce, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: average the bucket over the ranks, blocking, and time the all_reduce alone."""
    gradients = bucket.buffer().div_(state.group.size())
    start_ns = time.perf_counter_ns()
    dist.all_reduce(gradients, group=state.group)
    state.step_ns += time.perf_counter_ns() - start_ns
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


class Contender:
    """One backend's group, model and optimiser, and what was recorded of its steps."""

    def __init__(self, job: Job, group: dist.ProcessGroup, data: ClickData, batches: Batches, steps: int) -> None:
        torch.manual_seed(job.seed)
        self.model = DistributedDataParallel(
            ClickModel(data, batches.dense_features), process_group=group, gradient_as_bucket_view=True
        )
        self.clock = TimedAllReduce(group)
        self.model.register_comm_hook(self.clock, timed_all_reduce)
        weights, decay = self.model.parameters(), job.weight_decay
        self.optimizer = torch.optim.AdamW(weights, lr=job.learning_rate, weight_decay=decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0 - step / steps)
        self.loss: list[float] = []
        self.step_ns: list[int] = []
        self.comm_ns: list[int] = []
        self.auc: list[float] = []

    def train(self, batch: Batch) -> None:
        """One step; records its loss (this rank's), its time and its communication time."""
        start_ns = time.perf_counter_ns()
        self.optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(batch), batch.clicked)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.step_ns.append(time.perf_counter_ns() - start_ns)
        self.comm_ns.append(self.clock.take_step_ns())
        self.loss.append(float(loss.detach()))

    @torch.no_grad()
    def evaluate(self, held_out: Batch) -> None:
        """Record the AUC on the held-out impressions; every rank computes the same."""
        self.auc.append(auc(held_out.clicked.numpy(), self.model.module(held_out).numpy()))

    def digest(self) -> str:
        """SHA-256 of all weights."""
        state = hashlib.sha256()
        for parameter in self.model.parameters():
            state.update(parameter.detach().numpy().tobytes())
        return state.hexdigest()


def run_rank(rank: int, job: Job, progress: Connection | None) -> None:
    """Entry point of a rank: train all contenders and leave ``rank<r>.npz`` in ``job.run_dir``."""
    torch.set_num_threads(1)  # one core a rank
    torch.use_deterministic_algorithms(True)
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if "collectives" in job.backends:
        importlib.import_module("collectives")
    data = ClickData.load(job.data_path)
    train, test = split(data.impressions, job.seed)
    batches = Batches(data, train)
    steps = job.epochs * (train.size // job.batch)
    if steps == 0:
        raise ValueError(f"{train.size} training impressions are fewer than one batch of {job.batch}")
    groups = _make_groups(rank, job)
    contenders = [Contender(job, group, data, batches, steps) for group in groups]
    held_out = batches.make(test)
    for number, (epoch, turn) in enumerate(_turns(job, rank, train)):
        prepared = [batches.make(impressions) for impressions in turn]
        for index in _order(len(contenders), number):
            contender = contenders[index]
            for batch in prepared:
                contender.train(batch)
            done = len(contender.loss)
            if done % (train.size // job.batch) == 0:
                contender.evaluate(held_out)
            if progress is not None and rank == 0:
                progress.send(Progress(index, done, steps, epoch + 1, contender.loss[-1]))
    _save(job.run_dir / f"rank{rank}.npz", contenders)
    dist.destroy_process_group()


def _make_groups(rank: int, job: Job) -> list[dist.ProcessGroup]:
    """One group a contender. A script with one backend calls ``init_process_group(name)`` and is done."""
    timeout = timedelta(seconds=job.timeout_s)
    dist.init_process_group(
        job.backends[0],
        init_method=f"file://{(job.run_dir / 'store').absolute()}",
        rank=rank,
        world_size=job.ranks,
        timeout=timeout,
    )
    groups: list[Any] = [dist.group.WORLD]
    groups += [dist.new_group(backend=name, timeout=timeout) for name in job.backends[1:]]
    return groups


def _turns(job: Job, rank: int, train: Ints) -> Iterator[tuple[int, list[Ints]]]:
    """(epoch, this rank's impressions for each step of the turn); a turn ends with its epoch at the latest."""
    for epoch in range(job.epochs):
        order = np.random.default_rng([job.seed, epoch]).permutation(train)
        batches = [order[start : start + job.batch] for start in range(0, order.size - job.batch + 1, job.batch)]
        for start in range(0, len(batches), job.round_steps):
            yield epoch, [batch[rank :: job.ranks] for batch in batches[start : start + job.round_steps]]


def _order(contenders: int, turn: int) -> list[int]:
    """Who goes first flips with each turn, so that no backend always finds the caches as the other left them."""
    return list(range(contenders)) if turn % 2 == 0 else list(reversed(range(contenders)))


def _save(path: Path, contenders: list[Contender]) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for index, contender in enumerate(contenders):
        arrays[f"loss_{index}"] = np.array(contender.loss)
        arrays[f"step_ns_{index}"] = np.array(contender.step_ns, dtype=np.int64)
        arrays[f"comm_ns_{index}"] = np.array(contender.comm_ns, dtype=np.int64)
        arrays[f"auc_{index}"] = np.array(contender.auc)
        arrays[f"digest_{index}"] = np.array(contender.digest())
    np.savez(path, **arrays)  # type: ignore[arg-type]
