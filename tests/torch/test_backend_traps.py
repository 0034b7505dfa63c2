"""What torch does differently for a backend that it does not know: each numbered trap of the documentation
(docs/backend.md, "What torch does differently") has its test here, under the same number.
"""

import datetime
import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.distributed as dist

import collectives.testing
from collectives.testing import run_ranks

CPU = torch.device("cpu")


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def monitored_barrier(rank, world_size):
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()
    group = dist.group.WORLD
    for _ in range(3):
        group.monitored_barrier()
    group.monitored_barrier(datetime.timedelta(seconds=20), wait_all_ranks=True)


def test_1_monitored_barrier_is_reached_through_the_group():
    run_ranks(monitored_barrier, 3)


def culprits(rank, world_size, wait_all_ranks):
    message = None
    if rank not in (1, 2):
        with pytest.raises(dist.DistBackendError, match="failed to pass monitoredBarrier in 500 ms") as caught:
            dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=0.5), wait_all_ranks=wait_all_ranks)
        message = str(caught.value)
    dist.barrier()  # the group goes on, and those that missed the meeting are in step again
    dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=20))
    return message


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_1_monitored_barrier_names_one_list_on_every_rank(wait_all_ranks):
    """pytorch#83289: ranks blamed each other."""
    results = run_ranks(culprits, 4, wait_all_ranks)
    for message in (results[0], results[3]):
        assert ("Ranks 1, 2 failed" if wait_all_ranks else "Rank 1 failed") in message


def late_comer(rank, world_size):
    group = dist.group.WORLD
    store = group.get_group_store()
    if rank == 1:
        store.wait(["given up"], datetime.timedelta(seconds=50))
    with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass") as caught:
        group.monitored_barrier(datetime.timedelta(seconds=0.3))
    store.set("given up", "1")
    assert ("this rank came too late" in str(caught.value)) == (rank == 1)
    dist.barrier()
    group.monitored_barrier(datetime.timedelta(seconds=20))


def test_1_a_rank_that_comes_late_gets_the_same_list():
    run_ranks(late_comer, 2)


def sequence_numbers(rank, world_size):
    group = dist.group.WORLD
    with pytest.raises(RuntimeError):
        group._get_sequence_number_for_group()
    ours = backend()
    ours._set_sequence_number_for_group()
    before = ours._get_sequence_number_for_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    dist.barrier()
    assert ours._get_sequence_number_for_group() == before + 4
    return before


def test_2_sequence_numbers_are_the_backends_own():
    assert len(set(run_ranks(sequence_numbers, 2))) == 1


def timeouts(rank, world_size):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=7))
    assert any("Set timeout is now only supported" in str(w.message) for w in caught), [str(w.message) for w in caught]
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=33))
    assert backend().options._timeout == datetime.timedelta(seconds=33)
    backend()._set_default_timeout(datetime.timedelta(seconds=34))
    assert backend().options._timeout == datetime.timedelta(seconds=34)
    with pytest.raises(ValueError, match="must be positive"):
        dist.group.WORLD.set_timeout(datetime.timedelta(seconds=0))

    # It counts: nobody else comes to this one.
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=0.4))
    store = dist.group.WORLD.get_group_store()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="timed out"):
            dist.all_reduce(torch.ones(3))
        store.set("over", "1")
    else:
        store.wait(["over"], datetime.timedelta(seconds=50))


def test_3_set_timeout_of_the_group():
    run_ranks(timeouts, 2)


def device_names(rank, world_size, name):
    collectives.testing.init_process_group(name)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == world_size).all()
    group = dist.new_group([0, 1])
    dist.all_reduce(tensor, group=group)
    assert type(backend(group)).__name__ == "C10dBackend"
    if name == "cpu:collectives,cuda:collectives":
        assert backend() is dist.group.WORLD._get_backend(torch.device("cuda"))
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["collectives", "cpu:collectives", "cpu:collectives,cuda:collectives", "COLLECTIVES"])
def test_4_plain_name_and_device_strings(name):
    run_ranks(device_names, 2, name, backend=None)


def default_backend(rank, world_size):
    """The default type is set for the plain name, so that everything that goes through it works."""
    group = dist.group.WORLD
    assert group.name() == "custom"
    assert not group._has_hooks()
    group._enable_collectives_timing()
    group._wait_for_pending_works()


def test_5_the_plain_name_has_a_default_backend():
    run_ranks(default_backend, 2)


def splits(rank, world_size):
    group = dist.group.WORLD
    half = group.split_group([0, 2] if rank != 1 else [1], group_name=f"half {rank % 2}")
    tensor = torch.full((3,), float(rank))
    half.allreduce([tensor]).wait()
    assert tensor.tolist() == [2.0 if rank != 1 else 1.0] * 3
    assert (half.rank(), half.size()) == ((rank // 2, 2) if rank != 1 else (0, 1))
    assert backend(half).options.global_ranks_in_group == ([0, 2] if rank != 1 else [1])
    assert backend().options.group_name == "0", "a split must not rename its parent"
    # The same ranks again under the same name, as a caller may well do.
    for _ in range(2):
        again = group.split_group([0, 1, 2])
        again.barrier().wait()
        again.shutdown()
    assert group.split_group([0] if rank == 0 else [1, 2], timeout=datetime.timedelta(seconds=9)).size() == (
        1 if rank == 0 else 2
    )


def test_6_split_group_on_the_cpu():
    run_ranks(splits, 3)


def shrinks(rank, world_size):
    if rank == 1:
        return
    group = dist.shrink_group([1])
    assert dist.get_world_size() == 2 and group.rank() == (0 if rank == 0 else 1)
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0, 2.0]
    group.monitored_barrier(datetime.timedelta(seconds=10))
    gathered = [None, None]
    dist.all_gather_object(gathered, rank)
    assert gathered == [0, 2]


def test_6_and_10_shrink_group_on_the_cpu():
    run_ranks(shrinks, 3)


def shrunk_type(rank, world_size):
    """Torch calls a shrunken CPU group gloo: the backend under that name must still be ours and work."""
    if rank == 2:
        return
    group = dist.shrink_group([2])
    assert group.name() == "gloo" and type(backend(group)).__name__ == "C10dBackend"
    assert backend(group).name() == "collectives"
    group._get_sequence_number_for_group()  # allowed under gloo's name
    dist.barrier()


def test_10_a_shrunk_group_is_registered_as_gloo():
    run_ranks(shrunk_type, 3)


def detail(rank, world_size):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    collectives.testing.init_process_group()
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert tensor.tolist() == [2.0] * 3
    group = dist.new_group([0, 1])
    dist.barrier(group)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    model(torch.ones(2, 3)).sum().backward()
    with pytest.raises(RuntimeError, match="Detected mismatch|mismatch"):
        dist.all_reduce(torch.ones(2 + rank))


def test_7_debug_level_detail_wraps_the_backend():
    run_ranks(detail, 2, backend=None, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def batches(rank, world_size):
    assert backend().supports_coalescing
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    for size in (1, 1 << 18):  # small and buffered; large, where neither side may wait for the other
        sent, received = torch.full((size,), float(rank)), torch.empty(size)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, previous)]
        )
        assert len(works) == 1
        works[0].wait()
        assert works[0].is_completed() and (received == previous).all()
    only = dist.P2POp(dist.isend if rank == 0 else dist.irecv, torch.empty(3), 1 - rank if rank < 2 else 0)
    if rank < 2:
        for work in dist.batch_isend_irecv([only]):
            work.wait()


@pytest.mark.parametrize("world_size", [2, 3])
def test_8_batch_isend_irecv_uses_blocks(world_size):
    run_ranks(batches, world_size)


def blocks(rank, world_size):
    manager = dist.distributed_c10d._coalescing_manager
    a, b, c = torch.ones(3), torch.full((2,), float(rank)), torch.empty(2 * world_size)
    with manager(device=CPU):
        dist.broadcast(b, 0)
        dist.all_gather_into_tensor(c, torch.full((2,), float(rank)))
    assert b.tolist() == [0.0, 0.0]
    assert c.tolist() == [float(r) for r in range(world_size) for _ in range(2)]

    ours = backend()
    ours._start_coalescing()
    inside = ours.allreduce([a])
    with pytest.raises(RuntimeError, match="coalescing block that has not ended"):
        inside.wait()
    strided = torch.ones(3, 2).t()
    ours.allreduce([strided])
    work = ours._end_coalescing()
    work.wait()
    inside.wait()
    assert a.tolist() == [world_size] * 3 and (strided == world_size).all()
    assert [t.data_ptr() for t in work.result()] == [a.data_ptr(), strided.data_ptr()]

    # Nothing in between is nothing to wait for; an end without a beginning is an error.
    ours._start_coalescing()
    ours._end_coalescing().wait()
    with pytest.raises(RuntimeError, match="without startCoalescing"):
        ours._end_coalescing()

    # A block that an exception left open does not swallow the operations after the next one begins.
    ours._start_coalescing()
    lost = ours.allreduce([torch.ones(2)])
    ours._start_coalescing()
    kept = torch.ones(2)
    ours.allreduce([kept])
    ours._end_coalescing().wait()
    assert (kept == world_size).all()
    with pytest.raises(dist.DistBackendError, match="left by an exception"):
        lost.wait()


@pytest.mark.parametrize("world_size", [1, 2])
def test_8_coalescing_blocks(world_size):
    run_ranks(blocks, world_size)


def bindings(rank, world_size):
    ours = backend()
    assert ours.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    assert isinstance(ours.options, collectives.Options)
    assert ours.supports_splitting and ours.supports_shrinking and ours.supports_coalescing
    part = ours.split(None, [0, 1])
    tensor = torch.ones(2)
    part.allreduce([tensor]).wait()
    assert tensor.tolist() == [2.0, 2.0]
    assert part.options.group_name != ours.options.group_name
    assert ours.split(None, [1 - rank]) is None
    merged = ours.merge(dist.PrefixStore("merge", dist.group.WORLD.get_group_store()), None, 1 - rank, 2)
    assert merged.rank() == 1 - rank
    merged.barrier().wait()
    with pytest.raises(ValueError, match="comes twice"):
        ours.split(None, [0, 0])
    with pytest.raises(ValueError, match="excludes itself"):
        ours.shrink([rank])
    remote = dist.group.WORLD.merge_remote_group(
        dist.PrefixStore("remote", dist.group.WORLD.get_group_store()), 2, datetime.timedelta(seconds=20), "merged"
    )
    remote.barrier().wait()


def test_9_what_torch_does_not_bind_is_bound():
    run_ranks(bindings, 2)


def backend_name(rank, world_size):
    assert dist.get_backend() == "collectives"
    assert dist.group.WORLD.name() == dist.group.WORLD._get_backend_name() == "custom"
    assert backend().name() == "collectives"


def test_12_torch_calls_the_group_custom():
    run_ranks(backend_name, 1)


def complex_numbers(rank, world_size):
    z = torch.tensor([1 + 2j])
    with pytest.raises(RuntimeError, match="conjugated"):
        dist.all_reduce(z.conj())
    with pytest.raises(ValueError, match="complex"):
        dist.all_reduce(z, op=dist.ReduceOp.PRODUCT)
    dist.all_reduce(z)
    assert z[0] == (1 + 2j) * world_size


def test_13_torch_takes_complex_tensors_apart():
    run_ranks(complex_numbers, 2)


def overwritten(rank, world_size, count):
    """What Inductor emits: an in-place operation on the input of one that has been started, and not awaited."""
    for call in range(40):
        w = torch.full((world_size, count), float(10 * call + rank))
        shuffled = torch.empty_like(w)
        first = dist.all_to_all_single(shuffled, w, async_op=True)
        second = dist.all_reduce(w, async_op=True)
        third = dist.broadcast(shuffled[0], 0, async_op=True)  # writes into the output of the first
        for work in (first, second, third):
            work.wait()
        assert (w == 10 * call * world_size + world_size * (world_size - 1) / 2).all()
        assert (shuffled[0] == 10 * call).all()
        assert (shuffled[1:] == 10 * call + torch.arange(1.0, world_size)[:, None]).all()


@pytest.mark.parametrize("count", [3, 5000, 200_000])  # inline, staged, and long enough for every way to move it
def test_operations_in_flight_do_not_overtake_each_other(count):
    run_ranks(overwritten, 2, count)
    run_ranks(overwritten, 3, count)


@pytest.mark.parametrize(
    "program",
    [
        "import torch; import torch.distributed as dist",  # the entry point alone
        "import collectives; import torch.distributed as dist",
        "import torch.distributed as dist; import collectives",
    ],
)
def test_registered_whatever_is_imported_first(program, tmp_path):
    code = (
        f"{program}\n"
        "dist.init_process_group('collectives', store=dist.HashStore(), rank=0, world_size=1)\n"
        "import torch\nt = torch.ones(2); dist.all_reduce(t); dist.destroy_process_group(); print('fine')"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, cwd=tmp_path, timeout=100
    )
    assert done.stdout == "fine\n" and done.returncode == 0, done.stderr


def options(rank, world_size):
    with pytest.raises(TypeError, match="must be collectives.Options"):
        collectives.testing.init_process_group(pg_options=dist.ProcessGroupGloo._Options())
    made = collectives.Options(timeout=datetime.timedelta(seconds=21), deterministic=True, transports=["shm"])
    collectives.testing.init_process_group(pg_options=made)
    assert backend().options._timeout == datetime.timedelta(seconds=21)  # before torch's own
    assert backend().options.deterministic and backend().options.transports == ["shm"]
    assert backend().options is not made
    tensor = torch.ones(5)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()


def test_options():
    run_ranks(options, 2, backend=None)
    with pytest.raises(ValueError, match="must be positive"):
        collectives.Options(timeout=datetime.timedelta(seconds=-1))
    with pytest.raises(TypeError):
        collectives.Options(no_such_option=1)
    for name in ("switch", "compressor"):
        with pytest.raises(ValueError, match=f"{name} was given, but this version has no"):
            collectives.Options(**{name: "x"})


def unknown_algorithm(rank, world_size):
    with pytest.raises(ValueError, match="no_such"):
        collectives.testing.init_process_group(pg_options=collectives.Options(algorithm="no_such"))


def test_an_unknown_algorithm_is_refused():
    run_ranks(unknown_algorithm, 2, backend=None)
