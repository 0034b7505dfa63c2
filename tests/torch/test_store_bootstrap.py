"""How the ranks of a group find each other through a store: every kind of store, missing ranks, Ctrl-C."""

import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

from collectives.testing import run_ranks

SHORT = datetime.timedelta(seconds=1)


def with_store(rank, world_size, kind, path):
    if kind == "file":
        store = dist.FileStore(path + "/file", world_size)
    else:
        port = path + "/port"
        if rank == 0:
            store = dist.TCPStore(
                "127.0.0.1", 0, world_size, is_master=True, use_libuv=kind == "tcp", wait_for_workers=False
            )
            with open(port + ".part", "w") as file:
                file.write(str(store.port))
            os.rename(port + ".part", port)
        else:
            while not os.path.exists(port):
                time.sleep(0.01)
            with open(port) as file:
                store = dist.TCPStore("127.0.0.1", int(file.read()), world_size, use_libuv=kind == "tcp")
    dist.init_process_group("collectives", store=store, rank=rank, world_size=world_size)
    for _ in range(3):
        group = dist.new_group()
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert (tensor == world_size).all()
        dist.destroy_process_group(group)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["file", "tcp", "tcp without libuv"])
def test_every_kind_of_store(kind, tmp_path):
    run_ranks(with_store, 3, kind, str(tmp_path), backend=None)


def missing(rank, world_size):
    if rank == 2:
        return None
    from collectives._rank_server import store

    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"for rank 2 of 3 to join") as caught:
        dist.init_process_group("collectives", store=store("missing"), rank=rank, world_size=world_size, timeout=SHORT)
    assert 0.9 < time.monotonic() - began < 10
    return str(caught.value)


def test_a_missing_rank_is_named():
    results = run_ranks(missing, 3, backend=None)
    assert all("rank 2" in message for message in results[:2])


def alone_at_a_tcp_store(rank, world_size, libuv):
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, use_libuv=libuv, wait_for_workers=False)
    before = store.timeout
    with pytest.raises(dist.DistBackendError, match="for rank 1 of 2 to join"):
        dist.init_process_group("collectives", store=store, rank=0, world_size=2, timeout=SHORT)
    return store.timeout == before


@pytest.mark.parametrize("libuv", [True, False])
def test_waiting_prints_nothing(libuv, capsys):
    """Torch warns on stderr whenever a TCPStore's own wait runs out."""
    assert run_ranks(alone_at_a_tcp_store, 1, libuv, backend=None) == [True]
    assert capsys.readouterr().out == ""  # where run_ranks repeats what the ranks printed


def file_that_vanishes(rank, world_size, path):
    from collectives._core import create_backend

    store = dist.FileStore(path)
    store.set("here", "1")
    patience = datetime.timedelta(seconds=300)
    store.set_timeout(patience)
    threading.Timer(0.5, os.remove, (path,)).start()
    prefixed = dist.PrefixStore("a", dist.PrefixStore("b", store))
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="the store of the process group failed"):
        create_backend(prefixed, 0, 2, datetime.timedelta(seconds=3), "vanished", [], None)
    assert time.monotonic() - began < 8
    return store.timeout == patience


def test_a_store_that_waits_longer_than_the_deadline_is_not_waited_for(tmp_path):
    """A FileStore looks for its file as long as its own timeout says."""
    assert run_ranks(file_that_vanishes, 1, str(tmp_path / "store"), backend=None) == [True]


def missing_in_a_subgroup(rank, world_size):
    if rank == 2:
        return
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match=r"for rank 1 \(global rank 2\) of 2 to join"):
            dist.new_group([1, 2], timeout=SHORT, use_local_synchronization=True)


def test_a_missing_rank_of_a_subgroup_is_named_by_both_numbers():
    run_ranks(missing_in_a_subgroup, 3)


def interrupted(rank, world_size):
    from collectives._rank_server import store

    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dist.init_process_group("collectives", store=store("alone"), rank=rank, world_size=2)
    assert time.monotonic() - began < 5


def test_ctrl_c_ends_the_wait_for_others():
    run_ranks(interrupted, 1, backend=None)


def interrupted_in_operations(rank, world_size):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dist.barrier()
    if rank == 1:
        dist.group.WORLD.get_group_store().wait(["over"], datetime.timedelta(seconds=50))
        return
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(torch.ones(2))
    assert time.monotonic() - began < 5
    with pytest.raises(dist.DistBackendError, match="interrupted"):  # raised once; the group has failed
        dist.all_reduce(torch.ones(2))
    dist.group.WORLD.get_group_store().set("over", "1")


def test_ctrl_c_ends_an_operation():
    run_ranks(interrupted_in_operations, 2)


def interrupted_in_wait(rank, world_size):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dist.barrier()
    if rank == 1:
        dist.group.WORLD.get_group_store().wait(["over"], datetime.timedelta(seconds=50))
        return
    work = dist.all_reduce(torch.ones(2), async_op=True)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    sparse = torch.eye(3).to_sparse()
    dist.group.WORLD.get_group_store().set("over", "1")
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(sparse)


def test_ctrl_c_ends_a_wait():
    run_ranks(interrupted_in_wait, 2)


def interrupted_in_sparse(rank, world_size):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dist.all_reduce(torch.eye(3).to_sparse())
    if rank == 1:
        dist.group.WORLD.get_group_store().wait(["over"], datetime.timedelta(seconds=50))
        return
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(torch.eye(3).to_sparse())
    dist.group.WORLD.get_group_store().set("over", "1")


def test_ctrl_c_ends_a_sparse_operation():
    run_ranks(interrupted_in_sparse, 2)


class Counting(dist.Store):
    """A store written in Python, which counts its requests."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.requests = 0

    def set(self, key, value):
        self.requests += 1
        self.inner.set(key, value)

    def get(self, key):
        self.requests += 1
        return self.inner.get(key)

    def add(self, key, value):
        self.requests += 1
        return self.inner.add(key, value)

    def check(self, keys):
        self.requests += 1
        return self.inner.check(keys)

    def wait(self, keys, timeout=datetime.timedelta(seconds=300)):
        raise AssertionError("a wait cannot be interrupted, and some print warnings")


def python_store(rank, world_size):
    from collectives._core import create_backend
    from collectives._rank_server import store

    counting = Counting(store("python"))
    made = create_backend(counting, rank, world_size, datetime.timedelta(seconds=30), "python", [], None)
    tensor = torch.ones(2)
    made.allreduce([tensor]).wait()
    assert tensor.tolist() == [2.0, 2.0]
    return counting.requests


def test_a_store_written_in_python():
    for requests in run_ranks(python_store, 2, backend=None):
        assert requests < 60
