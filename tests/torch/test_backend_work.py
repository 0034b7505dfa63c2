"""Works, futures, hooks, profiling, failure, shared memory and the life of a group of the torch backend."""

import datetime
import gc
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

from collectives.testing import run_ranks

CPU = torch.device("cpu")
ErrorType = torch._C._distributed_c10d.ErrorType


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def work_interface(rank, world_size):
    tensor = torch.full((4,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert [t.data_ptr() for t in work.result()] == [tensor.data_ptr()]
    work.synchronize()
    work.block_current_stream()
    assert work._get_duration() >= 0.0
    with pytest.raises(RuntimeError, match="only a receive has a source rank"):
        work.source_rank()
    future = work.get_future()
    assert future.value()[0].data_ptr() == tensor.data_ptr()
    assert work.get_future_result().wait() == 0  # WorkResult.SUCCESS

    outputs = [torch.empty(2) for _ in range(world_size)]
    gathered = dist.all_gather(outputs, torch.ones(2), async_op=True)
    assert [t.data_ptr() for t in gathered.get_future().wait()] == [t.data_ptr() for t in outputs]

    # Completion comes by itself, without a wait; and a work may be dropped with its tensors.
    slow = dist.all_reduce(torch.ones(1 << 16), async_op=True)
    deadline = time.monotonic() + 20
    while not slow.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    for _ in range(20):
        dist.all_reduce(torch.ones(5000), async_op=True)
    gc.collect()
    dist.barrier()


def test_work_interface():
    run_ranks(work_interface, 2)


def futures(rank, world_size):
    seen = []
    chained = (
        dist.all_reduce(torch.ones(3), async_op=True)
        .get_future()
        .then(lambda future: seen.append(threading.current_thread()) or future.value()[0] * 10)
    )
    assert chained.wait().tolist() == [10.0 * world_size] * 3 and len(seen) == 1

    # PowerSGD's pattern: a callback that itself starts and awaits the next operation, several of them at a time.
    def again(future):
        inner = dist.all_reduce(future.value()[0].clone(), async_op=True, group=second).get_future()
        return inner.wait()[0]

    second = dist.new_group()
    for _ in range(5):
        result = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again).wait()
        assert result.tolist() == [float(world_size**2)] * 2

    def fail(future):
        raise ValueError("of the callback's own")

    with pytest.raises(Exception, match="of the callback's own"):
        dist.all_reduce(torch.ones(2), async_op=True).get_future().then(fail).wait()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_futures_run_callbacks_that_communicate(world_size):
    run_ranks(futures, world_size)


def hooks(rank, world_size):
    seen = []
    group = dist.new_group()
    group._register_on_completion_hook(lambda info: seen.append((info.op_type, info.seq, info.active_duration)))
    assert group._has_hooks() and not dist.group.WORLD._has_hooks()
    dist.all_reduce(torch.ones(4), group=group)  # synchronous ones count, too
    dist.all_reduce(torch.ones(4), group=group, async_op=True).wait()
    dist.barrier(group)
    group._wait_for_pending_works()
    types = [op_type for op_type, _, _ in seen]
    assert [str(t).rsplit(".", 1)[-1] for t in types] == ["ALLREDUCE", "ALLREDUCE", "BARRIER"]
    assert [seq for _, seq, _ in seen] == sorted(seq for _, seq, _ in seen)
    assert all(duration >= datetime.timedelta(0) for _, _, duration in seen)
    with pytest.raises(RuntimeError, match="has a completion hook already"):
        group._register_on_completion_hook(lambda info: None)
    dist.destroy_process_group(group)


def test_completion_hooks():
    run_ranks(hooks, 2)


def profiled(rank, world_size):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(3, 5))
        dist.all_reduce(torch.ones(3, 5), async_op=True).wait()
        dist.broadcast(torch.ones(2), 0)
        dist.all_gather([torch.empty(2) for _ in range(world_size)], torch.ones(2))
        dist.reduce_scatter_tensor(torch.empty(1), torch.ones(world_size))
        dist.all_to_all_single(torch.empty(world_size), torch.ones(world_size))
        dist.barrier()
        if rank == 0:
            dist.send(torch.ones(7), 1)
        else:
            dist.recv(torch.ones(7))
    ranges = [(e.name, e.input_shapes) for e in profiler.events() if e.name.startswith("collectives:")]
    names = sorted(name.removeprefix("collectives:") for name, _ in ranges)
    message = "send" if rank == 0 else "recvAnySource"
    assert names == sorted(
        ["all_reduce", "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier", message]
    )
    assert [shapes for name, shapes in ranges if name == "collectives:all_reduce"] == [[[3, 5]], [[3, 5]]]


def test_the_profiler_sees_every_operation():
    run_ranks(profiled, 2)


def per_operation_timeout(rank, world_size):
    """pytorch#158128: it was ignored; the group's is a minute here."""
    if rank == 1:
        dist.group.WORLD.get_group_store().wait(["over"], datetime.timedelta(seconds=50))
        return
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=0.5)
    options.asyncOp = False
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="timed out after 0.5") as caught:
        dist.group.WORLD.allreduce([torch.ones(2)], options)
    assert 0.4 < time.monotonic() - began < 5
    assert "all_reduce" in str(caught.value) and "rank 1" in str(caught.value)
    assert backend().get_error() == ErrorType.TIMEOUT
    with pytest.raises(dist.DistBackendError):  # the first error, again and at once
        dist.all_reduce(torch.ones(2))
    assert time.monotonic() - began < 6
    dist.group.WORLD.get_group_store().set("over", "1")


def test_timeout_of_one_operation():
    run_ranks(per_operation_timeout, 2, timeout=60)


def timeout_of_wait(rank, world_size):
    if rank == 1:
        dist.group.WORLD.get_group_store().wait(["over"], datetime.timedelta(seconds=50))
        return
    work = dist.all_reduce(torch.ones(2), async_op=True)
    with pytest.raises(dist.DistBackendError):
        work.wait(datetime.timedelta(seconds=0.3))
    assert not work.is_success() and work.exception() is not None
    with pytest.raises(Exception, match="all_reduce|timed out"):
        work.get_future().wait()
    assert work.get_future_result().wait() != 0
    dist.group.WORLD.get_group_store().set("over", "1")


def test_timeout_of_a_wait():
    run_ranks(timeout_of_wait, 2, timeout=60)


def aborted(rank, world_size):
    store = dist.group.WORLD.get_group_store()
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        timer = threading.Timer(0.3, dist.group.WORLD.abort)
        timer.start()
        with pytest.raises(dist.DistBackendError, match="abort"):
            work.wait()
        timer.join()
        assert backend().get_error() == ErrorType.COMM_ERROR
        store.set("aborted", "1")
    else:
        store.wait(["aborted"], datetime.timedelta(seconds=50))
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="abort"):
        for _ in range(2):  # the data of the aborted one may have been sent: that one ends well here
            dist.all_reduce(torch.ones(2))
    with pytest.raises(dist.DistBackendError, match="abort"):
        dist.all_reduce(torch.ones(2), async_op=True).wait()
    assert time.monotonic() - began < 5


def test_abort_wakes_waiters_here_and_elsewhere():
    run_ranks(aborted, 2)


def killed(rank, world_size, when):
    dist.barrier()
    if rank == 1:
        if when == "inside":
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
            dist.recv(torch.empty(1), 0)  # never sent
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        for _ in range(100):
            dist.all_reduce(torch.ones(10))
            time.sleep(0.05)
    assert time.monotonic() - began < 5
    assert backend().get_error() == ErrorType.REMOTE_ERROR
    group = dist.shrink_group([1], shrink_flags=1)
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("when", ["between", "inside"])
def test_a_killed_rank_is_named_and_the_rest_goes_on(when):
    run_ranks(killed, 3, when, expect_killed=[1])


def suspended(rank, world_size):
    group = backend()
    for _ in range(3):
        dist.barrier()
    before = group._get_sequence_number_for_group()
    group.suspend()
    assert group.memory_stats()["suspended"] == 1
    with pytest.raises(RuntimeError, match="suspended"):
        dist.all_reduce(torch.ones(2))
    with pytest.raises(RuntimeError, match="suspended"):
        dist.isend(torch.ones(2), 1 - rank)
    group.resume()
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0, 2.0] and group.memory_stats()["suspended"] == 0
    assert group._get_sequence_number_for_group() > before
    with pytest.raises(RuntimeError, match="not suspended"):
        group.resume()


def test_suspend_and_resume():
    run_ranks(suspended, 2)


def shared_tensors(rank, world_size):
    group = backend()
    before = group.memory_stats()["heap_used_bytes"]
    assert group.supports_tensor_alloc(CPU) and not group.supports_tensor_alloc(torch.device("cuda:0"))
    tensor = group.allocate_tensor(1000, dtype=torch.float32, device=CPU)
    assert tensor.shape == (1000,) and tensor.dtype == torch.float32 and (tensor == 0).all()
    assert group.memory_stats()["heap_used_bytes"] > before
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    assert (tensor == 3).all()
    storage = tensor.untyped_storage()
    assert storage.resizable()
    storage.resize_(0)
    storage.resize_(4000)
    del tensor, storage
    gc.collect()
    assert group.memory_stats()["heap_used_bytes"] == before
    with pytest.raises(ValueError, match="for CPU tensors"):
        group.allocate_tensor(10, dtype=torch.float32, device=torch.device("meta"))
    assert group.allocate_tensor(0, dtype=torch.int8, device=CPU).numel() == 0


def dropped(rank, world_size):
    """A group that nobody destroyed goes with its last work, not before."""
    part = backend().split(None, [0, 1])
    tensors = [torch.full((200_000,), float(rank)) for _ in range(4)]
    works = [part.allreduce([tensor]) for tensor in tensors]
    del part
    gc.collect()
    for work in works:
        work.wait()
    assert all((tensor == 1).all() for tensor in tensors)


def test_a_dropped_group_ends_what_it_began():
    run_ranks(dropped, 2)


def test_tensors_in_shared_memory():
    run_ranks(shared_tensors, 2)


def many_groups(rank, world_size):
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def use(groups):
        for group in groups:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert (tensor == world_size).all()

    use([dist.new_group()])
    before = descriptors()
    groups = [dist.new_group() for _ in range(60)]
    use(groups)
    used = backend().memory_stats()["segment_used_bytes"]
    for _ in range(3):
        for group in groups[:20]:
            dist.destroy_process_group(group)
        groups[:20] = []
        groups += [dist.new_group() for _ in range(20)]
        use(groups)
    gc.collect()
    assert backend().memory_stats()["segment_used_bytes"] <= used
    assert descriptors() <= before + 2


def test_many_groups_leak_nothing():
    run_ranks(many_groups, 2, timeout=110)


def made_again(rank, world_size):
    """The same store and names once more, as torchrun's processes do."""
    store = dist.group.WORLD.get_group_store()
    dist.destroy_process_group()
    for round_number in range(3):
        dist.init_process_group("collectives", store=store, rank=rank, world_size=world_size)
        tensor = torch.full((2,), float(round_number))
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2.0 * round_number] * 2
        dist.destroy_process_group()
    dist.init_process_group("collectives", store=store, rank=rank, world_size=world_size)


def test_destroyed_and_made_again_with_the_same_store():
    run_ranks(made_again, 2)


def left_open(rank, world_size):
    """Leaving without destroy_process_group, with operations under way, ends the process cleanly."""
    dist.all_reduce(torch.ones(100_000), async_op=True)
    dist.irecv(torch.ones(5), 1 - rank)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda f: f.value())
    future.wait()


def test_exit_without_destroy():
    run_ranks(make_and_leave, 2, backend=None)


def make_and_leave(rank, world_size):
    import collectives.testing

    collectives.testing.init_process_group()
    left_open(rank, world_size)


def threads(rank, world_size):
    """Two groups used by two threads at once."""
    groups = [dist.new_group() for _ in range(2)]
    problems = []

    def use(group, number):
        try:
            for i in range(200):
                tensor = torch.full((1 + i,), float(number))
                dist.all_reduce(tensor, group=group, async_op=i % 2 == 0) and None
                group.barrier().wait()
                assert (tensor == world_size * number).all()
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=use, args=(group, i + 1)) for i, group in enumerate(groups)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems, problems


def test_two_threads_with_a_group_each():
    run_ranks(threads, 2)
