"""What the library logs when groups are made, and where COLLECTIVES_LOG sends it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from collectives import log
from collectives.testing import communicator, run_ranks


class Kept(logging.Handler):
    """A handler that keeps (level, text)."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


@pytest.fixture
def fresh(monkeypatch) -> Iterator[None]:
    """A process that has not logged yet."""
    monkeypatch.setattr(log, "_configured", False)
    monkeypatch.setattr(log, "_said", set())
    level, handlers, propagate = log.logger.level, list(log.logger.handlers), log.logger.propagate
    yield
    log.logger.setLevel(level)
    log.logger.handlers[:] = handlers
    log.logger.propagate = propagate


def groups_of_both_kinds(rank: int, world_size: int) -> list[tuple[str, str]]:
    kept = Kept()
    log.logger.addHandler(kept)
    log.logger.setLevel(logging.DEBUG)
    communicator(name="first")
    communicator(name="second")
    dist.new_group([0, 1])
    return kept.lines


def test_what_a_group_runs_on_is_said_once() -> None:
    for rank, lines in enumerate(run_ranks(groups_of_both_kinds, 2)):
        assert [level for level, _ in lines][1:] == ["DEBUG", "DEBUG"], lines  # nothing that the first had not said
        first = lines[0][1]
        assert first.startswith(f"group 'first', rank {rank} of 2: transport shm (")
        assert "staging" in first and " stores (measured)" in first
        assert "are staged or pulled, as the first calls of each size measure" in first or "no pulling (" in first


def derived_groups(rank: int, world_size: int) -> list[str]:
    kept = Kept()
    log.logger.addHandler(kept)
    log.logger.setLevel(logging.DEBUG)
    comm = communicator(name="parent")
    comm.split(0)
    comm.split(None if rank == 1 else 0)
    comm.shrink([1]) if rank == 0 else None
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.split(None, [0, 1])
    backend.merge(dist.PrefixStore("merge", dist.group.WORLD.get_group_store()), None, 1 - rank, 2)
    if rank == 0:
        backend.shrink([1])
    return [text.partition(": ")[0] for _, text in kept.lines]


def test_groups_made_of_others_say_so_too() -> None:
    first, second = run_ranks(derived_groups, 2)
    assert first[:4] == [
        "group 'parent', rank 0 of 2",
        "group 'parent/split0.0', rank 0 of 2",
        "group 'parent/split1.0', rank 0 of 1",
        "group 'parent/shrink2', rank 0 of 1",
    ]
    assert second[:2] == ["group 'parent', rank 1 of 2", "group 'parent/split0.0', rank 1 of 2"]
    assert [line.partition(", ")[2] for line in first[4:]] == ["rank 0 of 2", "rank 1 of 2", "rank 0 of 1"], first
    assert [line.partition(", ")[2] for line in second[2:]] == ["rank 1 of 2", "rank 0 of 2"], second


def quiet(rank: int, world_size: int) -> tuple[str, str]:
    communicator()
    return log.logger.name, logging.getLevelName(log.logger.getEffectiveLevel())


def test_nothing_is_said_by_default(capsys) -> None:
    assert run_ranks(quiet, 2, backend=None) == [("collectives", "WARNING")] * 2
    assert capsys.readouterr().out == ""  # where run_ranks repeats what the ranks printed


def told_by_the_environment(rank: int, world_size: int) -> bool:
    comm = communicator(name="told")
    return comm.describe().startswith("transport shm")


def test_the_variable_prints_to_stderr(capsys) -> None:
    told = {"COLLECTIVES_LOG": "info", "COLLECTIVES_STREAMING_STORES": "on", "COLLECTIVES_SPINS": "3"}
    assert run_ranks(told_by_the_environment, 2, backend=None, env=told) == [True, True]
    printed = capsys.readouterr().out
    for rank in range(2):
        assert f"INFO: group 'told', rank {rank} of 2: transport shm (" in printed
    assert printed.count("streaming stores (set to on)") == 2
    assert printed.count("WARNING: COLLECTIVES_SPINS is set, but there is no such variable") == 2


def test_a_level_that_does_not_exist_is_an_error_before_anybody_waits() -> None:
    code = (
        "import datetime, torch.distributed as dist, collectives\n"
        "dist.init_process_group('collectives', store=dist.HashStore(), rank=0, world_size=2)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "COLLECTIVES_LOG": "loud"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "ValueError: COLLECTIVES_LOG='loud': expected one of error, warning, info, debug" in result.stderr


@pytest.mark.usefixtures("fresh")
def test_a_group_of_one_says_so_too(caplog) -> None:
    caplog.set_level(logging.INFO, "collectives")
    log.configure()
    log.group_made("alone", 0, 1, "one rank: there is nothing to move")
    log.group_made("again", 0, 1, "one rank: there is nothing to move")
    assert caplog.messages == ["group 'alone', rank 0 of 1: one rank: there is nothing to move"]
