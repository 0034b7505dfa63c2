"""Collectives and messages between hosts.

The suites that run within a host, unchanged, on ranks of several; and what only happens between hosts.
"""

from __future__ import annotations

import importlib
import os
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


def random_bits(rank: int, world_size: int) -> list[bytes]:
    """Return the bits of sums of random floats, by each collective that adds; a reduce only has them on its root."""
    import numpy as np
    import torch
    import torch.distributed as dist

    import collectives

    tests.hosts.init_process_group("collectives", pg_options=collectives.Options(deterministic=True))
    results = []
    for dtype in ("float32", "bfloat16", "float64"):
        for length in (3, 5_000, 300_000):
            random = np.random.default_rng(rank).standard_normal(length * world_size)
            mine = torch.from_numpy(random).to(getattr(torch, dtype))
            reduced, rooted = mine[:length].clone(), mine[length : 2 * length].clone()
            dist.all_reduce(reduced)
            dist.reduce(rooted, dst=world_size - 1)
            scattered = torch.empty(length, dtype=mine.dtype)
            dist.reduce_scatter_tensor(scattered, mine)
            kept = [reduced, scattered, *([rooted] if rank == world_size - 1 else [])]
            results += [each.view(torch.uint8).numpy().tobytes() for each in kept]
    return results


@pytest.mark.parametrize("ranks", [[1, 1, 1], [2, 2], [3, 1]], ids=str)
def test_deterministic_sums_have_the_bits_of_shared_memory(ranks: list[int]) -> None:
    with Hosts(len(ranks)) as hosts:
        between = run_ranks_on_hosts(random_bits, hosts, ranks, backend=None)
        within = run_ranks_on_hosts(random_bits, hosts, [sum(ranks), *[0] * (len(ranks) - 1)], backend=None)
    assert between == within
    assert between[0][0::2] == between[1][0::2], "all_reduce gives all ranks the same bits"


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


def many_groups(rank: int, world_size: int, count: int) -> tuple[int, float]:
    """Make groups of all, three and two ranks, use each; return descriptors that they cost, and the seconds for all."""
    import torch
    import torch.distributed as dist

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    everyone = range(world_size)
    members = [list(everyone)]
    members += [[each for each in everyone if each != left_out] for left_out in everyone]
    members += [[one, other] for one in everyone for other in range(one + 1, world_size)]
    dist.all_reduce(torch.ones(1))
    before, began_s, held = 0, time.monotonic(), []
    for number in range(count):
        ranks = members[number % len(members)]
        group = dist.new_group(ranks)
        if number == len(members):  # every two ranks have met, so every link is there
            before = descriptors()
        if rank not in ranks:
            continue
        held.append((number, ranks, group))
        _sum_in(group, ranks, number)
    for number, ranks, group in held[::-1]:  # they are all of use, in any order that their ranks agree on
        _sum_in(group, ranks, number)
    after, took_s = descriptors(), time.monotonic() - began_s
    for number, _, group in held:
        if number % 2:
            dist.destroy_process_group(group)
    dist.barrier()
    return after - before, took_s


def _sum_in(group: Any, ranks: list[int], number: int) -> None:
    import torch
    import torch.distributed as dist

    for size in (7, 20_000):
        tensor = torch.full((size,), float(number + dist.get_rank()))
        dist.all_reduce(tensor, group=group)
        assert (tensor == number * len(ranks) + sum(ranks)).all(), (number, ranks, tensor[0])


def test_two_hundred_groups_on_four_hosts_cost_no_descriptor_and_little_time() -> None:
    with Hosts(4) as hosts:
        for grown, took_s in run_ranks_on_hosts(many_groups, hosts, 1, 200):
            assert grown <= 0
            assert took_s < 30


# ---- disagreements ---------------------------------------------------------------------------------------------------


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
