"""Functions run on ranks that are placed on hosts."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from collectives.testing import RanksFailed
from tests.hosts import Hosts, communicator, init_process_group, run_ranks_on_hosts

pytestmark = pytest.mark.usefixtures("possible")


def where(rank: int, world_size: int, extra: str) -> tuple[int, str, str, str, str]:
    return rank, socket.gethostname(), os.readlink("/proc/self/ns/net"), os.environ["LOCAL_RANK"], extra


def test_ranks_are_where_they_should_be(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Hosts(3) as hosts:
        found = run_ranks_on_hosts(where, hosts, [2, 0, 1], "more", backend=None)
        nets = [os.readlink(f"/proc/{hosts.pid(host)}/ns/net") for host in range(3)]
    assert found == [
        (0, "host0", nets[0], "0", "more"), (1, "host0", nets[0], "1", "more"), (2, "host2", nets[2], "0", "more")
    ]  # fmt: skip


def reduces(rank: int, world_size: int) -> float:
    import torch
    import torch.distributed as dist

    tensor = torch.full((1000,), 2.0**rank)
    dist.all_reduce(tensor)
    return float(tensor[999])


@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_gloo_reduces_across_hosts(ipv6: bool) -> None:
    with Hosts(2, ipv6=ipv6) as hosts:
        assert run_ranks_on_hosts(reduces, hosts, 2, backend="gloo") == [15.0] * 4
        assert run_ranks_on_hosts(reduces, hosts, 1, backend="gloo") == [3.0] * 2  # again, on the same hosts


def reduces_by_hand(rank: int, world_size: int) -> tuple[float, float]:
    import numpy
    import torch
    import torch.distributed as dist

    init_process_group("gloo")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    with communicator() as comm:
        return float(tensor[0]), float(comm.all_reduce(numpy.full(5, rank + 1.0))[4])


def test_the_project_s_own_backend_runs_within_a_host() -> None:
    with Hosts(1) as hosts:
        assert run_ranks_on_hosts(reduces, hosts, 2) == [3.0] * 2
        assert run_ranks_on_hosts(reduces_by_hand, hosts, 2, backend=None) == [(2.0, 3.0)] * 2


def fails_on_one(rank: int, world_size: int) -> None:
    if rank == 1:
        raise LookupError(f"as planned on {socket.gethostname()}")


def dies(rank: int, world_size: int) -> str:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_errors_and_deaths_are_those_of_run_ranks() -> None:
    with Hosts(2) as hosts:
        with pytest.raises(RanksFailed, match="as planned on host1") as caught:
            run_ranks_on_hosts(fails_on_one, hosts, backend=None)
        assert isinstance(caught.value.errors[1], LookupError)
        assert run_ranks_on_hosts(dies, hosts, backend=None, expect_killed={1}) == ["alive", None]


def test_what_cannot_be_placed_is_refused() -> None:
    with Hosts(2) as hosts:
        for ranks, message in (([1], "for 2 hosts"), ([0, 1], "host 0 has the store"), (0, "for 2 hosts")):
            with pytest.raises(ValueError, match=message):
                run_ranks_on_hosts(dies, hosts, ranks)
        with pytest.raises(ValueError, match="not a lambda"):
            run_ranks_on_hosts(lambda rank, world_size: None, hosts)
