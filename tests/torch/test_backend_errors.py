"""Bad input to the torch backend: a ValueError that names the argument and the reason, on the rank that made the
mistake, before anything is sent, so that the group still works afterwards.
"""

import re

import pytest
import torch
import torch.distributed as dist

from collectives.testing import run_ranks


def refused(message: str, call, *args, **kwargs) -> None:
    with pytest.raises(ValueError, match=message):
        call(*args, **kwargs)


def bad_arguments(rank, world_size):
    group = dist.group.WORLD
    one, meta = torch.ones(3), torch.ones(3, device="meta")
    halves = [torch.empty(3) for _ in range(world_size)]

    # Each is refused, with the argument's name; each rank alone, so that nobody else has to notice.
    refused(r"broadcast: root rank 99 is not in this group of 2 ranks", group.broadcast, one, 99)
    refused("reduce: root rank -1", group.reduce, [one], reduce_options(root=-1))
    refused("gather: root rank 2", group.gather, [halves], [one], root(dist.GatherOptions(), 2))
    refused("scatter: root rank 2", group.scatter, [one], [halves], root(dist.ScatterOptions(), 2))
    refused("all_reduce: tensors has 2 tensors", group.allreduce, [one, one])
    refused(
        "all_gather: output_tensors has 1 tensors, expected one for each of the 2 ranks",
        group.allgather,
        [[one]],
        [one],
    )
    refused(
        r"all_gather: output_tensors\[\d\] has 4 elements, expected 3",
        group.allgather,
        [[torch.empty(4), torch.empty(4)]],
        [one],
    )
    refused(
        r"all_gather: output_tensors\[1\] has dtype float64, but all_gather: input_tensor has float32",
        group.allgather,
        [[torch.empty(3), torch.empty(3, dtype=torch.float64)]],
        [one],
    )
    refused(
        "all_gather_into_tensor: output_tensor has 5 elements, expected 6",
        dist.all_gather_into_tensor,
        torch.empty(5),
        one,
    )
    refused(
        "reduce_scatter_tensor: input_tensor has 3 elements, expected 6",
        dist.reduce_scatter_tensor,
        torch.empty(3),
        one,
    )
    refused("reduce_scatter: input_tensors has 1 tensors", group.reduce_scatter, [one], [[one]])
    refused(
        "gather: output_tensors must be empty" if rank else "gather: output_tensors has 1 tensors",
        group.gather,
        [[one]],
        [one],
        root(dist.GatherOptions(), 0),
    )
    refused(
        "scatter: input_tensors must be empty" if rank else "scatter: input_tensors has 1 tensors",
        group.scatter,
        [one],
        [[one]],
        root(dist.ScatterOptions(), 0),
    )

    # Splits (pytorch#101380, #191511).
    out = torch.empty(4)
    refused(
        "output_split_sizes sums to 5, but output has 4 rows",
        dist.all_to_all_single,
        out,
        torch.ones(4),
        [2, 3],
        [2, 2],
    )
    refused("input_split_sizes sums to 3", dist.all_to_all_single, out, torch.ones(4), [2, 2], [2, 1])
    refused("input_split_sizes has 3 entries", dist.all_to_all_single, out, torch.ones(4), [2, 2], [2, 1, 1])
    refused("negative entry", dist.all_to_all_single, out, torch.ones(4), [2, 2], [5, -1])
    refused("5 rows, which do not divide into 2 equal parts", dist.all_to_all_single, torch.empty(5), torch.ones(5))
    refused("output_tensor_list has 1 tensors", group.alltoall, [one], [one, one])

    # Tensors that have no memory here, or whose elements share it.
    refused("tensor is on meta.*CPU tensors only", backend().allreduce, [meta])
    refused("complex32|ComplexHalf", group.allreduce, [torch.ones(3, dtype=torch.complex32)])
    refused("several elements share one address", group.allreduce, [torch.ones(1).expand(3)])
    refused("layout.*expected a dense tensor", backend().broadcast, [torch.eye(3).to_sparse()])
    memory = torch.ones(6 * world_size)
    refused("overlap", dist.all_gather_into_tensor, memory[: 2 * world_size], memory[1:3])
    refused("overlap", dist.all_to_all_single, memory[:4], memory[2:6])

    # Operations that make no sense.
    refused("avg|average", group.allreduce, [torch.ones(3, dtype=torch.int32)], dist.ReduceOp.AVG)
    refused("bits", group.allreduce, [torch.ones(3)], dist.ReduceOp.BAND)
    refused("avg|average", dist.all_reduce, torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG, None, True)

    # Messages.
    refused("send: rank 7 is not in this group", group.send, [one], 7, 0)
    refused("recv: rank 7 is not in this group", group.recv, [one], 7, 0)
    refused("tag is -3", group.send, [one], 1 - rank, -3)
    refused("send: tensors has 2 tensors", group.send, [one, one], 1 - rank, 0)
    refused("several elements share one address", group.recv, [torch.ones(1).expand(3)], 1 - rank, 0)

    # And after all that the group is as good as new, with all ranks in step.
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    assert (tensor == world_size).all()


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def root(options, rank: int):
    options.rootRank = rank
    return options


def reduce_options(root: int):
    options = dist.ReduceOptions()
    options.rootRank = root
    return options


def test_bad_arguments_are_value_errors_and_harm_nobody():
    run_ranks(bad_arguments, 2)


def overlapping_outputs(rank, world_size):
    group, ours = dist.group.WORLD, backend()
    one, memory = torch.full((4,), 1.0 + rank), torch.zeros(16)
    matrix = torch.zeros(4, 4)
    pairs = {
        "the same tensor": [memory[:4], memory[:4]],
        "by one element": [memory[:4], memory[3:7]],
        "the other way round": [memory[3:7], memory[:4]],
        "strided": [matrix[:, 1], matrix.flatten()[1::2][:4]],
        "a row and a column": [matrix[1], matrix[:, 2]],
    }
    for outputs in pairs.values():
        names = r"\[0\] and \w+\[1\] share memory"
        refused(f"all_gather: output_tensors{names}", dist.all_gather, outputs, one)
        refused(f"gather: output_tensors{names}", group.gather, [outputs], [one], root(dist.GatherOptions(), rank))
        refused(f"all_to_all: output_tensor_list{names}", dist.all_to_all, outputs, [one, one])
        entries = r"outputs of entries 0 and 1 of the lists share memory"
        refused(entries, group.allreduce_coalesced, outputs)
        wide = [torch.zeros(8), torch.zeros(8)]
        refused(entries, ours.reduce_scatter_tensor_coalesced, outputs, wide)
    spread = [memory[:8], memory[6:14]]
    refused(entries, ours.allgather_into_tensor_coalesced, spread, [one, one.clone()])
    lists = [[torch.zeros(4), memory[:4]], [torch.zeros(4), memory[2:6]]]
    refused(r"two outputs of entry 1 of the lists share", group.allgather_coalesced, lists, [one, one.clone()])

    # Interleaved is apart, and so is what is empty.
    columns = list(matrix.unbind(1))[:2]
    dist.all_gather(columns, one)
    assert matrix[:, 0].tolist() == [1.0] * 4 and matrix[:, 1].tolist() == [2.0] * 4
    dist.all_gather([memory[:0], memory[:0]], one[:0])
    dist.all_gather([memory[4:8], memory[:4]], one)
    assert memory[:8].tolist() == [2.0] * 4 + [1.0] * 4


def test_outputs_that_share_memory_are_refused():
    run_ranks(overlapping_outputs, 2)


def disagreeing(rank, world_size, case):
    first, second = {
        "operation": (lambda: dist.all_reduce(torch.ones(4)), lambda: dist.broadcast(torch.ones(4), 0)),
        "dtype": (lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(4, dtype=torch.float64))),
        "count": (lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(5))),
        "root": (lambda: dist.broadcast(torch.ones(4), 0), lambda: dist.broadcast(torch.ones(4), 1)),
        "op": (lambda: dist.all_reduce(torch.ones(4)), lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX)),
        "splits": (
            lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), [2, 2], [2, 2]),
            lambda: dist.all_to_all_single(torch.empty(3), torch.ones(4), [1, 2], [2, 2]),
        ),
    }[case]
    with pytest.raises(dist.DistBackendError) as caught:
        (first if rank == 0 else second)()
        dist.barrier()
    return re.sub(r"\s+", " ", str(caught.value))


@pytest.mark.parametrize("case", ["operation", "dtype", "count", "root", "op", "splits"])
def test_ranks_that_disagree_raise_on_every_rank(case):
    for message in run_ranks(disagreeing_within_seconds, 2, case, timeout=60):
        assert "rank" in message


def disagreeing_within_seconds(rank, world_size, case):
    dist.group.WORLD.set_timeout(__import__("datetime").timedelta(seconds=5))
    return disagreeing(rank, world_size, case)


def cuda_is_refused_clearly(rank, world_size):
    # No CUDA here: what the dispatcher would hand over is a tensor that says it is elsewhere.
    with pytest.raises(ValueError, match="CPU tensors only"):
        backend().allgather([[torch.empty(2, device="meta")]], [torch.empty(2, device="meta")])


def test_tensors_of_other_devices_are_refused():
    run_ranks(cuda_is_refused_clearly, 1)
