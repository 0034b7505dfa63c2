"""`collectives.testing.run_ranks` with the ranks placed on the hosts of a rig.

The ranks are forked from the same server. Each moves into its host's namespaces before it does anything else, so that
its sockets, its hostname and its /dev/shm are the host's. They meet in a TCPStore on host 0, as those of a real job do.
"""

from __future__ import annotations

import datetime
import os
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.hosts import namespaces
from tests.hosts.rig import Hosts

if TYPE_CHECKING:
    from collectives.communicator import Communicator


@dataclass(frozen=True)
class _Placement:
    hosts: tuple[int, ...]  # of each rank
    pids: tuple[int, ...]  # of each host
    address0: str
    environments: tuple[dict[str, str], ...]  # of each rank


@dataclass
class _Here:
    """Where this process is, in a rank."""

    rank: int
    world_size: int
    timeout: float
    address: str
    host: int
    store: Any = None


_here: _Here | None = None


def run_ranks_on_hosts(
    fn: Callable[..., Any],
    hosts: Hosts,
    ranks_per_host: int | Sequence[int] = 1,
    *args: Any,
    timeout: float = 60,
    backend: str | None = "collectives",
    env: Mapping[str, str] | None = None,
    expect_killed: Collection[int] = (),
) -> list[Any]:
    """Run ``fn(rank, world_size, *args)`` in one process a rank, each on its host, in order of hosts.

    Parameters
    ----------
    fn : callable
        A function of a module that is not ``__main__``.
    hosts : Hosts
        Where.
    ranks_per_host : int or sequence of int
        Processes on each.
    *args, timeout, backend, env, expect_killed
        As of :func:`collectives.testing.run_ranks`.

    Returns
    -------
    list
        What ``fn`` returned, in rank order.

    Raises
    ------
    collectives.testing.RanksFailed
        As run_ranks does.
    ValueError
        If the numbers of ranks do not fit the hosts, or the function cannot be found by other processes.
    """
    from collectives.testing import run_ranks

    counts = [ranks_per_host] * len(hosts) if isinstance(ranks_per_host, int) else list(ranks_per_host)
    if len(counts) != len(hosts) or min(counts) < 0 or sum(counts) == 0:
        raise ValueError(f"ranks_per_host: {ranks_per_host} for {len(hosts)} hosts")
    if not counts[0]:
        raise ValueError("ranks_per_host: host 0 has the store, so it needs a rank")
    if fn.__module__ == "__main__":
        raise ValueError("run_ranks_on_hosts: the function must be of a module that can be imported")
    call = _pickled(fn, args)
    placed = tuple(host for host, count in enumerate(counts) for _ in range(count))
    local = tuple(index for count in counts for index in range(count))
    environments = tuple(
        {"HOST_INDEX": str(host), "HOST_COUNT": str(len(hosts)), "HOST_ADDRESS": hosts.address(host),
         "HOST0_ADDRESS": hosts.address(0), "LOCAL_RANK": str(index), "LOCAL_WORLD_SIZE": str(counts[host])}
        for host, index in zip(placed, local, strict=True)
    )  # fmt: skip
    pids = tuple(hosts.pid(host) for host in range(len(hosts)))
    placement = _Placement(placed, pids, hosts.address(0), environments)
    return run_ranks(
        _on_host, len(placed), call, placement, backend, timeout,
        timeout=timeout, backend=None, env=env, expect_killed=expect_killed,
    )  # fmt: skip


def communicator(**options: Any) -> Communicator:
    """Make the communicator of all ranks, for functions under run_ranks_on_hosts with ``backend=None``."""
    from collectives.communicator import Communicator

    here = current()
    options.setdefault("timeout", here.timeout)
    return Communicator.from_store(store(), here.rank, here.world_size, **options)


def init_process_group(backend: str, **options: Any) -> None:
    """Initialise torch.distributed, for functions under run_ranks_on_hosts with ``backend=None``."""
    import torch.distributed as dist

    here = current()
    options.setdefault("timeout", datetime.timedelta(seconds=here.timeout))
    dist.init_process_group(backend, store=store(), rank=here.rank, world_size=here.world_size, **options)


def current() -> _Here:
    """Return where this process is.

    Raises
    ------
    RuntimeError
        If it is no rank of run_ranks_on_hosts.
    """
    if _here is None:
        raise RuntimeError("tests.hosts: this process was not started by run_ranks_on_hosts")
    return _here


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((fn, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        name = getattr(fn, "__qualname__", fn)
        raise ValueError(
            f"run_ranks_on_hosts: {name!r} and its arguments must be picklable (a function of a module, not a lambda "
            f"or a function within one): {error}"
        ) from None


# ---- in a rank -------------------------------------------------------------------------------------------------------

_stores_made = 0


def _on_host(
    rank: int, world_size: int, call: bytes, placement: _Placement, backend: str | None, timeout: float
) -> Any:
    global _here
    host = placement.hosts[rank]
    namespaces.enter(placement.pids[host])
    os.environ.update(placement.environments[rank])
    _here = _Here(rank, world_size, timeout, placement.address0, host)
    fn, args = pickle.loads(call)
    if backend is None:
        return fn(rank, world_size, *args)
    import torch.distributed as dist

    init_process_group(backend)
    value = fn(rank, world_size, *args)
    if dist.is_initialized():
        dist.destroy_process_group()
    return value


def store() -> Any:
    """Return a store in which the ranks of this run meet, on host 0; each call of all ranks gives a fresh one."""
    import torch.distributed as dist

    global _stores_made
    here = current()
    _stores_made += 1
    if here.store is None:
        here.store = _connect(here)
    return dist.PrefixStore(f"store-{_stores_made}", here.store)


def _connect(here: _Here) -> Any:
    """Make the TCPStore on host 0, on a port that is free there, or connect to it.

    The port goes by way of a file of this run, which all hosts see.
    """
    import torch.distributed as dist

    from collectives import _rank_server

    file = _rank_server.store("port-on-host-0")
    timeout = datetime.timedelta(seconds=here.timeout)
    if here.rank == 0:
        tcp = dist.TCPStore(here.address, 0, None, True, timeout, wait_for_workers=False)
        file.set("port", str(tcp.port))
        return tcp
    return dist.TCPStore(here.address, int(file.get("port")), None, False, timeout, wait_for_workers=False)
