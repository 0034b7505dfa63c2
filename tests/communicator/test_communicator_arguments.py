"""What the Communicator's methods accept and refuse on one rank: dtypes, layouts, roots, splits, and the messages."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch
import torch.distributed as dist

import collectives
from collectives.testing import run_ranks


@pytest.fixture(scope="module")
def comm():
    with collectives.Communicator.from_store(dist.HashStore(), 0, 1, timeout=20) as communicator:
        yield communicator


def test_identity(comm) -> None:
    assert (comm.rank, comm.world_size, comm.name, comm.timeout) == (0, 1, "world", 20.0)
    comm.timeout = 5.5
    assert comm.timeout == 5.5
    assert repr(comm) == "<collectives.Communicator 'world' rank 0 of 1>"
    assert comm.exception() is None
    with pytest.raises(TypeError, match="cannot create"):
        collectives.Communicator()


@pytest.mark.parametrize("array", [np.arange(6.0), torch.arange(6.0), np.array(3.0), torch.tensor(3)])
def test_returns_the_array_it_wrote(comm, array) -> None:
    assert comm.all_reduce(array) is array
    out = np.zeros_like(array) if isinstance(array, np.ndarray) else torch.zeros_like(array)
    assert comm.all_reduce(array, out=out) is out
    assert (out == array).all()
    assert comm.broadcast(array) is array
    assert comm.reduce(array) is array
    assert comm.all_gather(out, array) is out
    assert comm.gather(out, array) is out
    assert comm.scatter(out, array) is out
    assert comm.reduce_scatter(out, array) is out
    assert comm.barrier() is None


def test_all_to_all_on_matrices_counts_rows(comm) -> None:
    array = np.arange(12.0).reshape(4, 3)
    out = np.zeros((4, 3))
    comm.all_to_all(out, array, [4], [4])
    assert (out == array).all()
    with pytest.raises(ValueError, match=r"in_splits: the entries add up to 12, but there are 4 rows of array"):
        comm.all_to_all(out, array, None, [12])
    with pytest.raises(ValueError, match=r"one row .* has 2 elements, one row of array 3"):
        comm.all_to_all(np.zeros((6, 2)), array)


REFUSED = [
    (lambda c: c.all_reduce([1.0]), TypeError, r"array: expected a NumPy array or a torch CPU tensor, got list"),
    (lambda c: c.all_reduce(np.array([object()])), ValueError, r"array: NumPy dtype object is not supported"),
    (lambda c: c.all_reduce(np.zeros(2, np.longdouble)), ValueError, r"dtype (longdouble|float128) is not supported"),
    (lambda c: c.all_reduce(np.zeros(2, "M8[s]")), ValueError, r"datetime64\[s\] is not supported"),
    (lambda c: c.all_reduce(np.zeros(2, ">f8")), ValueError, r"array: the byte order of dtype >f8"),
    (lambda c: c.all_reduce(np.ma.zeros(3)), ValueError, r"array: a masked array"),
    (lambda c: c.all_reduce(np.broadcast_to(np.zeros(1), 4)), ValueError, r"array: the array is read-only"),
    (lambda c: c.all_reduce(torch.zeros(1).expand(4)), ValueError, r"array: several of its elements share one address"),
    (lambda c: c.all_reduce(torch.zeros(3).to_sparse()), ValueError, r"array: a sparse tensor"),
    (lambda c: c.all_reduce(torch.zeros(3, device="meta")), ValueError, r"array: a tensor that is not on the CPU"),
    (lambda c: c.all_reduce(np.zeros(3), "mean"), ValueError, r"op: 'mean' is no .*mean \"avg\"\? .*premul_sum"),
    (lambda c: c.all_reduce(np.zeros(3), "prod"), ValueError, r"op: 'prod' is no .* mean \"product\"\? Known are"),
    (lambda c: c.reduce(np.zeros(3), op="median"), ValueError, r"op: 'median' is no reduce operation. Known are"),
    (lambda c: c.all_reduce(np.zeros(3), 3), ValueError, r"op: 3 is no reduce operation. Known are"),
    (lambda c: c.all_reduce(np.zeros(3), "premul_sum"), ValueError, r"mean \(\"premul_sum\", factor\)\?"),
    (lambda c: c.all_reduce(np.zeros(3), ("premul_sum", "x")), TypeError, r"op: the factor of premul_sum"),
    (lambda c: c.all_reduce(np.zeros(3), ("premul_sum", 1j)), ValueError, r"factor|complex|imaginary"),
    (lambda c: c.all_reduce(np.zeros(3), "band"), ValueError, r"band.*float64|float64.*band"),
    (lambda c: c.all_reduce(np.zeros(3, int), "avg"), ValueError, r"avg.*int64|int64.*avg"),
    (lambda c: c.all_reduce(np.zeros(3), compressor=object()), ValueError, r"compressor: .*pass None"),
    (lambda c: c.all_reduce(np.zeros(3), out=np.zeros(4)), ValueError, r"out: has 4 elements, but must .* 3"),
    (lambda c: c.all_reduce(np.zeros(3), out=np.zeros(3, "f4")), ValueError, r"out: its dtype is float32"),
    (lambda c: c.all_reduce(np.zeros(3), timeout=-1), ValueError, r"timeout: must be at least 0"),
    (lambda c: c.all_reduce(np.zeros(3), timeout="1"), TypeError, r"timeout: expected seconds"),
    (lambda c: c.all_reduce(np.zeros(3), async_op=1), TypeError, r"async_op: expected True or False"),
    (lambda c: c.all_reduce(np.zeros(3), opp="sum"), TypeError, r"all_reduce\(\) takes no argument 'opp'"),
    (lambda c: c.all_reduce(np.zeros(3), array=np.zeros(3)), TypeError, r"got the argument 'array' twice"),
    (lambda c: c.all_reduce(), TypeError, r"all_reduce\(\) misses the argument 'array'"),
    (lambda c: c.barrier(1, 2, 3), TypeError, r"barrier\(\) takes at most 2 arguments, got 3"),
    (lambda c: c.broadcast(np.zeros(3), root=1), ValueError, r"root: must be from 0 to 0, got 1"),
    (lambda c: c.broadcast(np.zeros(3), root=0.5), TypeError, r"root: expected an integer"),
    (lambda c: c.all_gather(np.zeros(3), np.zeros(2)), ValueError, r"out: has 3 elements, but must have .* 2"),
    (lambda c: c.all_gather(np.zeros(3), np.zeros(2), [3]), ValueError, r"array: has 2 elements, but must .* 3"),
    (lambda c: c.all_gather(np.zeros(3), np.zeros(2), [2, 1]), ValueError, r"counts: must have one entry a rank \(1\)"),
    (lambda c: c.all_gather(np.zeros(3), np.zeros(2), 3), TypeError, r"counts: expected a sequence of integers"),
    (lambda c: c.all_gather(np.zeros(3), np.zeros(2), [-3]), ValueError, r"counts: must be from 0"),
    (lambda c: c.reduce_scatter(np.zeros(2), np.zeros(3)), ValueError, r"array: has 3 elements, but must have .* 2"),
    (lambda c: c.reduce_scatter(np.zeros(2), np.zeros(2), counts=[3]), ValueError, r"counts: .* 3, .* 2 rows of array"),
    (lambda c: c.gather(None, np.zeros(2)), ValueError, r"out: the root must give an array"),
    (lambda c: c.scatter(np.zeros(2)), ValueError, r"array: the root must give the array"),
    (lambda c: c.send(np.zeros(2), None), TypeError, r"destination: expected a rank"),
    (lambda c: c.send(np.zeros(2), 1), ValueError, r"destination: must be from 0 to 0"),
    (lambda c: c.send(np.zeros(2), 0, tag=-1), ValueError, r"tag: must be from 0"),
    (lambda c: c.recv(np.zeros(2), 7), ValueError, r"source: must be from 0 to 0"),
    (lambda c: c.shrink(3), TypeError, r"exclude: expected a sequence"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=lambda value: "")
def test_refuses(comm, call, kind, message: str) -> None:
    with pytest.raises(kind) as caught:
        call(comm)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert comm.all_reduce(np.ones(1))[0] == 1  # wrong arguments do no harm to the group


def test_overlap_is_refused_unless_it_is_exact(comm) -> None:
    base = np.arange(10.0)
    with pytest.raises(ValueError, match="overlap"):
        comm.all_reduce(base[:6], out=base[2:8])
    with pytest.raises(ValueError, match="out: shares memory with array"):
        comm.all_reduce(base[0:8:2], out=base[1:9:2])
    with pytest.raises(ValueError, match="out: shares memory with array"):
        comm.all_gather(base[::-1], base)
    same = base[:]  # another object, the same memory
    assert comm.all_reduce(base, out=same) is same
    tensor = torch.arange(10.0)
    with pytest.raises(ValueError, match="overlap"):
        comm.all_to_all(tensor[1:5], tensor[:4])


def test_read_only_inputs_are_fine(comm) -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert comm.all_reduce(array, out=np.zeros(3)).tolist() == [0, 1, 2]
    assert comm.broadcast(array) is array  # the root only reads
    with pytest.raises(ValueError, match="out: the array is read-only"):
        comm.all_reduce(np.zeros(3), out=array)


def test_unaligned_arrays_are_packed(comm) -> None:
    raw = np.zeros(8 * 4 + 1, np.uint8)
    array = raw[1:].view(np.float64)
    array[:] = [1, 2, 3, 4]
    out = np.zeros(4)
    assert comm.all_reduce(array, out=out).tolist() == [1, 2, 3, 4]
    assert comm.all_reduce(out, out=array).tolist() == [1, 2, 3, 4]


def test_lazy_conjugates(comm) -> None:
    tensor = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert tensor.is_conj()
    assert comm.all_reduce(tensor, out=torch.zeros(2, dtype=torch.complex64)).tolist() == [1 - 2j, 3 + 1j]
    target = torch.zeros(2, dtype=torch.complex64)
    comm.all_reduce(torch.tensor([5j, 6]), out=target.conj())
    assert target.tolist() == [-5j, 6]


def test_autograd_sees_that_a_tensor_changed(comm) -> None:
    tensor, saved = torch.ones(3), torch.ones(3, requires_grad=True)
    product = (saved * tensor).sum()
    comm.all_reduce(tensor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_tensor_subclasses_without_memory_are_refused(comm) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(3)
    with pytest.raises(ValueError, match="array: a tensor (subclass|that is not)"):
        comm.all_reduce(fake)
    assert comm.all_reduce(torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]


@pytest.mark.needs("ml_dtypes")
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_ml_dtypes(comm, name: str) -> None:
    import ml_dtypes

    array = np.array([1, 2, 0.5]).astype(getattr(ml_dtypes, name))
    assert comm.all_reduce(array).astype(float).tolist() == [1, 2, 0.5]
    with pytest.raises(ValueError, match="float8_e3m4 is not supported"):
        comm.all_reduce(np.zeros(3, ml_dtypes.float8_e3m4))


def test_dlpack_only_arrays_say_what_to_do(comm) -> None:
    class OnlyDlpack:
        def __dlpack__(self) -> None: ...

    with pytest.raises(TypeError, match="convert it to NumPy or torch"):
        comm.all_reduce(OnlyDlpack())


def test_the_stub_lists_exactly_the_methods_there_are(repository) -> None:
    import ast

    from collectives import _core

    tree = ast.parse((repository / "collectives" / "_core.pyi").read_text(encoding="utf-8"))
    for name in ("Communicator", "Request"):
        body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name).body
        listed = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        listed |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
        there = {key for key in vars(getattr(_core, name)) if not key.startswith("__")}
        assert listed == there


def test_methods_have_documentation() -> None:
    from collectives import _core

    for kind in (_core.Communicator, _core.Request):
        for name, member in vars(kind).items():
            if not name.startswith("__"):
                assert inspect.getdoc(member), name


def fills_the_heap(rank: int, world_size: int) -> str:
    kept = [collectives.empty(200_000, dtype="uint8") for _ in range(4)]
    with pytest.raises(torch.OutOfMemoryError) as raised:
        collectives.empty(500_000, dtype="uint8")
    assert len(kept) == 4
    return str(raised.value)


def test_a_full_heap_names_the_variable_that_makes_it_larger() -> None:
    (text,) = run_ranks(fills_the_heap, 1, backend=None, env={"COLLECTIVES_HEAP_BYTES": "1MiB"})
    assert "no room for 500000 bytes" in text and "of 1048576 bytes are in use" in text, text
    assert "COLLECTIVES_HEAP_BYTES" in text, text


def test_empty_is_zeroed_shared_memory() -> None:
    from collectives import _core

    before = _core.node_info()["heap_used_bytes"]
    tensor = collectives.empty((3, 5), dtype="bfloat16")
    assert tensor.shape == (3, 5)
    assert tensor.dtype == torch.bfloat16
    assert not tensor.any()
    assert _core.node_info()["heap_used_bytes"] > before
    view = tensor.view(torch.uint8).numpy()[1:]
    del tensor
    assert _core.node_info()["heap_used_bytes"] > before, "a view keeps the memory"
    del view
    assert _core.node_info()["heap_used_bytes"] == before
    assert collectives.empty(0).shape == (0,)
    assert collectives.empty(4).dtype == torch.get_default_dtype()
    with pytest.raises(ValueError, match="shape: sizes must not be negative"):
        collectives.empty((2, -1))
    with pytest.raises(ValueError, match="no dtype named 'float33'"):
        collectives.empty(2, dtype="float33")
