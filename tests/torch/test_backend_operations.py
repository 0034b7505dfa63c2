"""Every operation of the torch backend against a plain reference, over real processes: dtypes, reduce operations, list
and flat forms, synchronous and asynchronous, even and uneven, contiguous and strided, 1 to 4 ranks.
"""

import functools
import operator
import random

import pytest
import torch
import torch.distributed as dist

from collectives.testing import run_ranks

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTS = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
ALL = FLOATS + INTS + FP8 + COMPLEX + (torch.bool,)
OPS = {
    dist.ReduceOp.SUM: operator.add,
    dist.ReduceOp.PRODUCT: operator.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.BAND: operator.and_,
    dist.ReduceOp.BOR: operator.or_,
    dist.ReduceOp.BXOR: operator.xor,
}


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers that differ between ranks; every dtype and any order of addition holds them exactly."""
    generator = random.Random(1000 * rank + count)
    numbers = torch.tensor([generator.randint(0, 2) for _ in range(count)], dtype=torch.int64)
    if dtype.is_complex:
        return torch.complex(numbers.double(), -numbers.double()).to(dtype)
    return numbers.to(dtype)


def reduced(op, world_size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """What the ranks' values reduce to, computed in a type wide enough."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    inputs = [values(rank, count, dtype).to(wide) for rank in range(world_size)]
    result = functools.reduce(OPS[op], inputs)
    return (result != 0) if dtype == torch.bool else result.to(dtype)


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Same shape, dtype and bits of value; torch.equal lacks some dtypes."""
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    if a.dtype in FP8:
        a, b = a.float(), b.float()
    return a.tolist() == b.tolist()


def works(op, dtype: torch.dtype) -> bool:
    """The library's table of reduce operations and dtypes."""
    if op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        return dtype in INTS or dtype == torch.bool
    return not (dtype.is_complex and op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX))


def finish(work, is_async: bool) -> None:
    if is_async:
        work.wait()
    else:
        assert work is None


def all_dtypes_reduce(rank, world_size):
    for dtype in ALL:
        for op in OPS:
            if not works(op, dtype):
                with pytest.raises(ValueError, match="all_reduce|complex|bits|op"):
                    dist.all_reduce(values(rank, 5, dtype).clone(), op)
                continue
            for is_async in (False, True):
                for count in (0, 1, 7, 1024):
                    tensor = values(rank, count, dtype)
                    if dtype.is_complex and op == dist.ReduceOp.PRODUCT:  # dist itself refuses it
                        dist.group.WORLD.allreduce([tensor], op).wait()
                    else:
                        finish(dist.all_reduce(tensor, op, async_op=is_async), is_async)
                    assert equal(tensor, reduced(op, world_size, count, dtype)), (dtype, op, count)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_all_reduce_has_every_dtype_and_operation(world_size):
    run_ranks(all_dtypes_reduce, world_size, timeout=110)


def average_and_premultiplied(rank, world_size):
    for dtype in FLOATS + COMPLEX:
        tensor = values(rank, 33, dtype)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        exact = sum(values(r, 33, dtype).to(wide) for r in range(world_size)) / world_size
        torch.testing.assert_close(tensor.to(wide), exact, rtol=1e-2 if tensor.element_size() == 2 else 1e-6, atol=0)
    for dtype in INTS + (torch.bool,):
        with pytest.raises(ValueError, match="average|avg"):
            dist.all_reduce(values(rank, 3, dtype), dist.ReduceOp.AVG)
    tensor = torch.ones(9)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [0.5 * world_size] * 9
    tensor = torch.ones(9)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(torch.tensor([2.0 + rank])))
    assert tensor.tolist() == [sum(2.0 + r for r in range(world_size))] * 9
    with pytest.raises(ValueError, match="premul"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), dist._make_nccl_premul_sum(2.0))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_average_and_premultiplied_sum(world_size):
    run_ranks(average_and_premultiplied, world_size)


def moves(rank, world_size):
    others = range(world_size)
    for dtype in ALL:
        for is_async in (False, True):
            for count in (0, 1, 13, 5000):
                mine = values(rank, count, dtype)
                for root in {0, world_size - 1}:
                    tensor = mine.clone()
                    finish(dist.broadcast(tensor, root, async_op=is_async), is_async)
                    assert equal(tensor, values(root, count, dtype))

                    outputs = [torch.empty_like(mine) for _ in others] if rank == root else None
                    finish(dist.gather(mine, outputs, root, async_op=is_async), is_async)
                    if rank == root:
                        assert all(equal(outputs[r], values(r, count, dtype)) for r in others)

                    output = torch.empty_like(mine)
                    inputs = [values(r, count, dtype) for r in others] if rank == root else None
                    finish(dist.scatter(output, inputs, root, async_op=is_async), is_async)
                    assert equal(output, mine)

                outputs = [torch.empty_like(mine) for _ in others]
                finish(dist.all_gather(outputs, mine, async_op=is_async), is_async)
                assert all(equal(outputs[r], values(r, count, dtype)) for r in others)

                flat = torch.empty(count * world_size, dtype=dtype)
                finish(dist.all_gather_into_tensor(flat, mine, async_op=is_async), is_async)
                assert equal(flat, torch.cat([values(r, count, dtype) for r in others]))

                outputs = [torch.empty_like(mine) for _ in others]
                finish(dist.all_to_all(outputs, [mine.clone() for _ in others], async_op=is_async), is_async)
                assert all(equal(outputs[r], values(r, count, dtype)) for r in others)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_operations_that_move_have_every_dtype(world_size):
    run_ranks(moves, world_size, timeout=110)


def scattered_sums(rank, world_size):
    for dtype in (torch.float32, torch.bfloat16, torch.int16, torch.uint32):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            for is_async in (False, True):
                for count in (0, 1, 11, 3000):
                    whole = reduced(op, world_size, count * world_size, dtype)
                    mine = values(rank, count * world_size, dtype)
                    share = whole[rank * count : (rank + 1) * count]

                    output = torch.empty(count, dtype=dtype)
                    finish(dist.reduce_scatter_tensor(output, mine, op, async_op=is_async), is_async)
                    assert equal(output, share)

                    output = torch.empty(count, dtype=dtype)
                    finish(
                        dist.reduce_scatter(
                            output,
                            list(mine.chunk(world_size)) if count else [torch.empty(0, dtype=dtype)] * world_size,
                            op,
                            async_op=is_async,
                        ),
                        is_async,
                    )
                    assert equal(output, share)

                    for root in {0, world_size - 1}:
                        tensor = mine.clone()
                        finish(dist.reduce(tensor, root, op, async_op=is_async), is_async)
                        assert equal(tensor, whole if rank == root else mine)  # others keep theirs


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_reduce_and_reduce_scatter(world_size):
    run_ranks(scattered_sums, world_size, timeout=110)


def uneven(rank, world_size):
    sizes = [(3 * r) % 7 for r in range(world_size)]  # one of them empty
    outputs = [torch.empty(size, 2) for size in sizes]
    dist.all_gather(outputs, torch.full((sizes[rank], 2), float(rank)))
    assert all((outputs[r] == r).all() and outputs[r].shape == (sizes[r], 2) for r in range(world_size))

    output = torch.empty(sizes[rank])
    dist.reduce_scatter(output, [torch.full((size,), float(r)) for r, size in enumerate(sizes)])
    assert output.tolist() == [float(rank * world_size)] * sizes[rank]

    in_splits = [(rank + r) % 3 for r in range(world_size)]
    out_splits = [(rank + r) % 3 for r in range(world_size)]
    source = torch.arange(sum(in_splits) * 2).view(-1, 2) + 100 * rank
    target = torch.empty(sum(out_splits), 2, dtype=torch.int64)
    dist.all_to_all_single(target, source, out_splits, in_splits)
    for r, block in enumerate(target.split(out_splits)):
        before = sum((r + k) % 3 for k in range(rank))
        expected = torch.arange(sum((r + k) % 3 for k in range(world_size)) * 2).view(-1, 2) + 100 * r
        assert torch.equal(block, expected[before : before + out_splits[r]])

    if rank == 0 and world_size > 1:  # gather and scatter have even blocks, as in torch
        with pytest.raises(ValueError, match="same size"):
            dist.gather(torch.ones(1), [torch.empty(r + 1) for r in range(world_size)], 0)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_uneven_blocks(world_size):
    run_ranks(uneven, world_size)


def strided(rank, world_size):
    """pytorch#192920 and others: strided tensors were silently wrong in other backends."""
    base = torch.arange(48.0).view(6, 8) + rank

    def check(make, operate, expected):
        for view in (lambda t: t, lambda t: t.t(), lambda t: t[::2, 1::3], lambda t: t[:, 3], lambda t: t.flip(0)):
            tensor = make(view)
            operate(tensor)
            torch.testing.assert_close(tensor, expected(view), rtol=0, atol=0)

    total = sum(torch.arange(48.0).view(6, 8) + r for r in range(world_size))

    def settled(is_async, operate, *args):
        return lambda tensor: finish(operate(tensor, *args, async_op=is_async), is_async)

    for is_async in (False, True):
        check(lambda v: v(base.clone()), settled(is_async, dist.all_reduce), lambda v: v(total))
        check(lambda v: v(base.clone()), settled(is_async, dist.broadcast, 0), lambda v: v(base - rank))
        check(lambda v: v(base.clone()), settled(is_async, dist.reduce, 0), lambda v: v(total if rank == 0 else base))

    # The elements around a strided result stay as they are.
    whole = torch.zeros(4, 4)
    dist.all_reduce(whole[1].fill_(1.0))
    dist.all_reduce(whole[:, 2])
    assert whole.sum().item() == world_size * 3 + world_size * world_size

    outputs = [torch.zeros(5, 4).t() for _ in range(world_size)]
    dist.all_gather(outputs, (torch.ones(5, 4) * rank).t())
    assert [o.mean().item() for o in outputs] == [float(r) for r in range(world_size)]
    flat = torch.zeros(2, 3 * world_size).t()
    dist.all_gather_into_tensor(flat, torch.full((3, 2), float(rank)))
    assert torch.equal(flat, torch.cat([torch.full((3, 2), float(r)) for r in range(world_size)]))
    part = torch.zeros(2, 3).t()
    dist.reduce_scatter_tensor(part, torch.ones(2, 3 * world_size).t())
    assert (part == world_size).all()
    scattered = torch.zeros(3, 2).t()
    dist.scatter(scattered, [torch.full((3, 2), float(r)).t() for r in range(world_size)] if rank == 0 else None, 0)
    assert (scattered == rank).all()
    swapped = torch.zeros(2, world_size).t()
    dist.all_to_all_single(swapped, torch.full((2, world_size), float(rank)).t())
    assert swapped[:, 0].tolist() == [float(r) for r in range(world_size)]
    if world_size > 1:
        if rank == 0:
            dist.send(torch.arange(6.0).view(2, 3).t(), 1)
        if rank == 1:
            received = torch.zeros(2, 3).t()
            dist.recv(received, 0)
            assert torch.equal(received, torch.arange(6.0).view(2, 3).t())

    # A lazy conjugate and a lazy minus are values, not memory.
    number = torch.full((3,), 1 + 2j).conj()
    gathered = torch.empty(3 * world_size, dtype=number.dtype)
    dist.group.WORLD.all_gather_single(gathered, number).wait()  # dist itself refuses these
    assert (gathered == 1 - 2j).all()
    imaginary = torch.full((3,), 1 + 2j).conj().imag
    gathered = torch.empty(3 * world_size)
    dist.all_gather_into_tensor(gathered, imaginary)
    assert (gathered == -2).all()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_strided_tensors_are_packed_and_unpacked(world_size):
    run_ranks(strided, world_size)


def parameters(rank, world_size):
    weight = torch.nn.Parameter(torch.full((4, 3), float(rank)))
    dist.broadcast(weight, 0)
    assert (weight == 0).all()
    transposed = torch.nn.Parameter(torch.full((4, 3), float(rank)).t())
    dist.broadcast(transposed, world_size - 1)
    assert (transposed == world_size - 1).all() and transposed.requires_grad
    with torch.inference_mode():
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert (tensor == world_size).all()


def test_tensors_that_require_gradients():
    run_ranks(parameters, 2)


def coalesced(rank, world_size):
    for is_async in (False, True):
        tensors = [torch.full((i,), float(rank + i)) for i in (1, 0, 5, 2000)]
        options = dist.AllreduceCoalescedOptions()
        options.asyncOp = is_async
        finish(dist.group.WORLD.allreduce_coalesced(tensors, options), is_async)
        assert [set(t.tolist()) for t in tensors] == [
            {float(sum(r + i for r in range(world_size)))} if i else set() for i in (1, 0, 5, 2000)
        ]
    with dist.distributed_c10d._coalescing_manager():
        mixed = [torch.ones(3), torch.ones(4).t()]
        for tensor in mixed:
            dist.all_reduce(tensor)
    assert all((t == world_size).all() for t in mixed)

    inputs = [torch.full((i,), float(rank)) for i in (1, 3)]
    outputs = [torch.empty(i * world_size) for i in (1, 3)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor)
    manager.wait()
    assert all(
        torch.equal(o, torch.arange(world_size).repeat_interleave(i).float())
        for o, i in zip(outputs, (1, 3), strict=True)
    )

    outputs = [torch.empty(i) for i in (2, 3)]
    with dist.distributed_c10d._coalescing_manager():
        for i, output in zip((2, 3), outputs, strict=True):
            dist.reduce_scatter_tensor(output, torch.ones(i * world_size) * (rank + 1))
    total = sum(range(1, world_size + 1))
    assert all((output == total).all() for output in outputs)

    lists = [[torch.empty(2), torch.empty(3)] for _ in range(world_size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), -float(rank))])
    assert all((lists[r][0] == r).all() and (lists[r][1] == -r).all() for r in range(world_size))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_coalesced_forms(world_size):
    run_ranks(coalesced, world_size)


def objects(rank, world_size):
    gathered = [None] * world_size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (100 * rank)})
    assert [g["rank"] for g in gathered] == list(range(world_size))
    box = [{"from": 0}, "second"] if rank == 0 else [None, None]
    dist.broadcast_object_list(box, 0)
    assert box == [{"from": 0}, "second"]
    out = [None]
    dist.scatter_object_list(out, [("to", r) for r in range(world_size)] if rank == 0 else None, 0)
    assert out == [("to", rank)]
    collected = [None] * world_size if rank == 0 else None
    dist.gather_object(rank, collected, 0)
    assert rank != 0 or collected == list(range(world_size))
    if world_size > 1:
        if rank == 0:
            dist.send_object_list(["hello", 3], 1)
        if rank == 1:
            box = [None, None]
            dist.recv_object_list(box, 0)
            assert box == ["hello", 3]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_object_collectives(world_size):
    run_ranks(objects, world_size)


def sparse(rank, world_size):
    def one(r: int, dtype: torch.dtype) -> torch.Tensor:
        # Ranks share index 0, have one of their own, and store one index twice; rank 2 has nothing at all.
        if r == 2:
            return torch.sparse_coo_tensor(
                torch.empty(2, 0, dtype=torch.int64), torch.empty(0, 3, dtype=dtype), (5, 4, 3)
            )
        indices = torch.tensor([[0, r + 1, r + 1], [0, 2, 2]])
        return torch.sparse_coo_tensor(indices, torch.arange(9).view(3, 3).to(dtype) + r, (5, 4, 3))

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64):
        expected = sum(one(r, dtype).to_dense() for r in range(world_size))
        for is_async in (False, True):
            tensor = one(rank, dtype)
            if dtype.is_complex:  # dist would reduce a copy: it cannot view sparse tensors as real
                options = dist.AllreduceOptions()
                options.asyncOp = is_async
                work = dist.group.WORLD.allreduce([tensor], options)
            else:
                work = dist.all_reduce(tensor, async_op=is_async)
            between = torch.ones(2)
            dist.all_reduce(between)  # other operations may come between
            finish(work, is_async)
            assert tensor.is_sparse and tensor.is_coalesced()
            assert torch.equal(tensor.to_dense(), expected) and (between == world_size).all()
    union = {(0, 0), *((r + 1, 2) for r in range(world_size) if r != 2)}
    assert set(map(tuple, tensor.indices().t().tolist())) == union

    tensor = one(rank, torch.float32)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    exact = sum(one(r, torch.float32).to_dense() for r in range(world_size)) / world_size
    torch.testing.assert_close(tensor.to_dense(), exact)
    with pytest.raises(ValueError, match="sum only"):
        dist.all_reduce(one(rank, torch.float32), dist.ReduceOp.MAX)

    works = [dist.all_reduce(one(rank, torch.float32), async_op=True) for _ in range(5)]
    future = works[-1].get_future()
    assert torch.equal(future.wait()[0].to_dense(), sum(one(r, torch.float32).to_dense() for r in range(world_size)))
    for work in works:
        work.wait()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_sparse_all_reduce_gives_the_union(world_size):
    run_ranks(sparse, world_size)


def messages(rank, world_size):
    following, previous = (rank + 1) % world_size, (rank - 1) % world_size
    for dtype in ALL:
        for count in (0, 1, 4000):
            received = torch.empty(count, dtype=dtype)
            request = dist.isend(values(rank, count, dtype), following, tag=3)
            dist.recv(received, previous, tag=3)
            request.wait()
            assert equal(received, values(previous, count, dtype))

    # Tags, not order, decide what meets what; and a receive may come long after its message.
    if rank == 0:
        for tag in (5, 6, 7):
            dist.isend(torch.full((1 << 16,), float(tag)), 1, tag=tag)
        dist.barrier()
    else:
        dist.barrier() if rank != 1 else None
    if rank == 1:
        boxes = {tag: torch.empty(1 << 16) for tag in (7, 5, 6)}
        requests = [dist.irecv(box, 0, tag=tag) for tag, box in boxes.items()]
        for request in requests:
            request.wait()
        assert all((box == tag).all() for tag, box in boxes.items())
        dist.barrier()

    # From anyone.
    if rank == 0:
        seen = set()
        for _ in range(world_size - 1):
            box = torch.empty(2)
            source = dist.recv(box)
            assert (box == source).all()
            seen.add(source)
        assert seen == set(range(1, world_size))
        box = torch.empty(1)
        work = dist.group.WORLD.recv_anysource([box], 9)
        work.wait()
        assert work._source_rank() == 1 == box.item()
    else:
        dist.send(torch.full((2,), float(rank)), 0)
        if rank == 1:
            dist.send(torch.ones(1), 0, tag=9)


@pytest.mark.parametrize("world_size", [2, 3])
def test_messages(world_size):
    run_ranks(messages, world_size)


def large(rank, world_size):
    count = 3_000_017
    tensor = torch.full((count,), float(rank + 1))
    dist.all_reduce(tensor)
    assert (tensor == sum(range(1, world_size + 1))).all()
    flat = torch.empty(count * world_size)
    dist.all_gather_into_tensor(flat, torch.full((count,), float(rank)))
    assert all((flat[r * count : (r + 1) * count] == r).all() for r in range(world_size))
    swapped = torch.empty(count // world_size * world_size)
    dist.all_to_all_single(swapped, torch.full_like(swapped, float(rank)))
    assert torch.equal(swapped.view(world_size, -1)[:, 0], torch.arange(world_size).float())


@pytest.mark.parametrize("world_size", [2, 3])
def test_messages_larger_than_the_staging_memory(world_size):
    run_ranks(large, world_size, timeout=100)
