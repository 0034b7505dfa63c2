"""Collectives and messages between hosts.

The suites that run within a host, unchanged, on ranks of several; and what only happens between hosts.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(200)]
HERE = Path(__file__).resolve().parent


def borrowed(rank: int, world_size: int, folder: str, module: str, name: str, *args: Any) -> Any:
    """Run a function of another folder's tests, with communicators that are made between hosts."""
    sys.path.insert(0, str(HERE.parent / folder))
    tests_of = importlib.import_module(module)
    if hasattr(tests_of, "communicator"):
        tests_of.communicator = tests.hosts.communicator
    if hasattr(tests_of, "Checks"):
        tests_of.Checks.association_is_free = True  # sums are taken within the hosts first
    return getattr(tests_of, name)(rank, world_size, *args)


@pytest.mark.parametrize("ranks", [[1, 1], [1, 1, 1], [2, 1], [2, 2]], ids=str)
@pytest.mark.parametrize("check", ["check_reductions", "check_movements"])
def test_equals_numpy(check: str, ranks: list[int]) -> None:
    with Hosts(len(ranks)) as hosts:
        found = run_ranks_on_hosts(
            borrowed, hosts, ranks, "communicator", "test_communicator_contract", check, backend=None, timeout=150
        )
    for rank, (count, wrong) in enumerate(found):
        assert count > 300, f"rank {rank} ran only {count} cases"
        assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize(
    "name",
    [
        "all_dtypes_reduce",
        "average_and_premultiplied",
        "moves",
        "scattered_sums",
        "uneven",
        "strided",
        "coalesced",
        "objects",
        "sparse",
        "messages",
        "large",
    ],
)
def test_torch_operations(name: str) -> None:
    with Hosts(2) as hosts:
        run_ranks_on_hosts(borrowed, hosts, [1, 2], "torch", "test_backend_operations", name, timeout=150)


def random_bits(rank: int, world_size: int, deterministic: bool) -> list[bytes]:
    import numpy as np
    import torch

    import collectives

    options = collectives.Options(deterministic=deterministic)
    tests.hosts.init_process_group("collectives", pg_options=options)
    results = []
    for dtype in ("float32", "bfloat16", "float64"):
        for length in (3, 5_000, 300_000):
            mine = torch.from_numpy(np.random.default_rng(rank).standard_normal(length)).to(getattr(torch, dtype))
            torch.distributed.all_reduce(mine)
            results.append(mine.view(torch.uint8).numpy().tobytes())
    return results


def test_deterministic_sums_have_the_bits_of_shared_memory() -> None:
    with Hosts(3) as hosts:
        between = run_ranks_on_hosts(random_bits, hosts, 1, True, backend=None)
        within = run_ranks_on_hosts(random_bits, hosts, [3, 0, 0], True, backend=None)
    assert between == within
    assert all(bits == between[0] for bits in between)


def two_levels(rank: int, world_size: int) -> str:
    """Rank 1 calls another reduction; every rank says what it heard."""
    import numpy as np

    comm = tests.hosts.communicator()
    try:
        for count in (1, 1000, 300_000):  # host 0 may be done with the last, and disagree, before host 1 is
            array = np.full(count, float(rank + 1))
            comm.all_reduce(array)
            assert (array == world_size * (world_size + 1) / 2).all()
        comm.all_reduce(np.ones(10), op="max" if rank == 1 else "sum", timeout=5.0)
        comm.barrier(timeout=5.0)
    except Exception as error:
        return str(error)
    return "none"


def test_two_levels_tell_of_the_call_that_was_made() -> None:
    with Hosts(2) as hosts:
        for text in run_ranks_on_hosts(two_levels, hosts, [2, 2], backend=None):
            assert "all_reduce of float64[10], max" in text and "all_reduce of float64[10], sum" in text, text
            assert "rank 1 (process" in text and "reduce_scatter" not in text, text


def interfaces(rank: int, world_size: int, wish: str) -> str:
    import torch

    import collectives

    try:
        tests.hosts.init_process_group("collectives", pg_options=collectives.Options(interface=wish))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    tensor = torch.ones(3)
    torch.distributed.all_reduce(tensor)
    assert tensor[0] == world_size
    return str(torch.distributed.group.WORLD._get_backend(torch.device("cpu")).describe())


def test_the_interface_can_be_named() -> None:
    with Hosts(2) as hosts:
        for rank, text in enumerate(run_ranks_on_hosts(interfaces, hosts, 1, "eth0", backend=None)):
            assert f"listens on eth0 ({hosts.address(rank)}), as asked for" in text
        for text in run_ranks_on_hosts(interfaces, hosts, 1, "nope0", backend=None):
            assert "interface 'nope0': no interface" in text and "eth0 (10." in text, text
        for text in run_ranks_on_hosts(interfaces, hosts, 1, "lo", backend=None):
            assert "loopback" in text and "COLLECTIVES_INTERFACE" in text, text


def many_groups(rank: int, world_size: int) -> int:
    import torch
    import torch.distributed as dist

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    dist.all_reduce(torch.ones(1))
    before = 0
    for number in range(60):
        group = dist.new_group()
        tensor = torch.full((7,), float(number))
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == number * world_size
        if number == 9:
            before = descriptors()
        if number % 2:
            dist.destroy_process_group(group)
    return descriptors() - before


def test_groups_cost_no_descriptor() -> None:
    with Hosts(2) as hosts:
        assert max(run_ranks_on_hosts(many_groups, hosts, [2, 1])) <= 0


# ---- faults ---------------------------------------------------------------------------------------------------------


def loop_until_error(rank: int, world_size: int, timeout: float | None = None) -> tuple[str, str, float, str]:
    """All-reduce until it fails; (type, text, when, what a second call says)."""
    import numpy as np

    comm = tests.hosts.communicator()
    array = np.ones(40_000, np.float32)
    for _ in range(100_000):
        try:
            comm.all_reduce(array, timeout=timeout)
        except Exception as error:
            again = ""
            try:
                comm.all_reduce(array)
            except Exception as second:
                again = str(second)
            return type(error).__name__, str(error), time.time(), again
        array[:] = 1
    return "none", "", time.time(), ""


def dies_after(rank: int, world_size: int, victim: int) -> tuple[str, str, float, str]:
    if rank == victim:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, 1.0)
    return loop_until_error(rank, world_size)


def test_a_killed_rank_is_an_error_that_names_it_on_every_survivor() -> None:
    with Hosts(3) as hosts:
        found = run_ranks_on_hosts(dies_after, hosts, 1, 1, backend=None, expect_killed=[1])
    survivors = [found[0], found[2]]
    for kind, text, _, again in survivors:
        assert kind == "PeerFailedError" and "rank 1 (process" in text and "died" in text, text
        assert again == text
    assert abs(survivors[0][2] - survivors[1][2]) < 1


def test_a_cut_cable_is_an_error_at_the_deadline() -> None:
    import threading

    with Hosts(2) as hosts:
        threading.Timer(4, lambda: hosts.link_down(1)).start()
        found = run_ranks_on_hosts(loop_until_error, hosts, 1, 2.0, backend=None)
    for rank, (kind, text, _, _) in enumerate(found):
        assert kind == "CollectiveTimeoutError" and f"rank {1 - rank} (process" in text, (rank, kind, text)


def calls_another(rank: int, world_size: int) -> str:
    import numpy as np

    comm = tests.hosts.communicator()
    try:
        for _ in range(3):
            if rank == 0:
                comm.all_reduce(np.ones(10, np.float32), timeout=5.0)
            else:
                comm.all_reduce(np.ones(11, np.float32), timeout=5.0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def test_ranks_that_disagree_hear_who_called_what() -> None:
    with Hosts(2) as hosts:
        for text in run_ranks_on_hosts(calls_another, hosts, 1, backend=None):
            assert "float32[10]" in text and "float32[11]" in text, text


def sends_too_much(rank: int, world_size: int) -> str:
    import numpy as np

    comm = tests.hosts.communicator()
    splits = [2, 5] if rank == 0 else [2, 3]  # rank 1 expects 3 of rank 0
    try:
        for _ in range(2):
            comm.all_to_all(np.ones(5, np.int64), np.ones(sum(splits), np.int64), [2, 3], splits, timeout=5.0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def test_splits_are_checked_pairwise() -> None:
    with Hosts(2) as hosts:
        found = run_ranks_on_hosts(sends_too_much, hosts, 1, backend=None)
    assert "sends 5 elements" in found[1] and found[0] != "none", found


# ---- strangers ------------------------------------------------------------------------------------------------------


def works_while_strangers_knock(rank: int, world_size: int) -> tuple[int, float]:
    """Rank 0 is knocked at by a child process; both go on reducing."""
    import re
    import socket
    import threading

    import numpy as np

    comm = tests.hosts.communicator()
    place = re.search(r"at ([0-9.]+):([0-9]+)", comm.describe())
    assert place is not None
    address = (place.group(1), int(place.group(2)))
    stop = threading.Event()
    knocks = 0

    def knock() -> None:
        nonlocal knocks
        random = np.random.default_rng(5)
        held = []
        while not stop.is_set():
            with socket.socket() as stranger:
                stranger.settimeout(2)
                try:
                    stranger.connect(address)
                    kind = knocks % 4
                    if kind == 0:
                        stranger.sendall(random.bytes(int(random.integers(1, 4000))))
                    elif kind == 1:
                        stranger.sendall(b"colltcp1" + random.bytes(24 + 32))  # a greeting, and then nothing good
                        stranger.recv(200)
                        stranger.sendall(random.bytes(32))
                    elif kind == 2:
                        held.append(stranger.dup())  # silent
                    knocks += 1
                except OSError:
                    pass
        for each in held:
            each.close()

    thread = threading.Thread(target=knock)
    if rank == 0:
        thread.start()
    end = time.monotonic() + 4
    total = 0.0
    going = np.ones(1, np.int64)
    while going[0]:
        array = np.full(3000, rank + 1.0)
        comm.all_reduce(array)
        assert (array == world_size * (world_size + 1) / 2).all()
        total += 1
        going[0] = time.monotonic() < end
        comm.broadcast(going, root=0)
    stop.set()
    if rank == 0:
        thread.join()
    return knocks, total


def test_strangers_change_nothing() -> None:
    with Hosts(2) as hosts:
        (knocks, rounds), _ = run_ranks_on_hosts(works_while_strangers_knock, hosts, 1, backend=None)
    assert knocks > 300 and rounds > 50, (knocks, rounds)
