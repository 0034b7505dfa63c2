"""What processes do to us: fork, exit without destroying anything, a small /dev/shm, and hundreds of groups."""

from __future__ import annotations

import datetime
import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from fault_helpers import catch

import collectives
from collectives import _core
from collectives.testing import communicator, init_process_group, run_ranks


def _descriptors(pid: int | str = "self") -> list[str]:
    """What the descriptors of a process point to, those of pipes and files of the test left out."""
    links = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:
            continue  # the descriptor of this very listing
    return sorted(links)


def _ours(links: list[str]) -> list[str]:
    """The descriptors that hold a peer or its memory: memfds, pidfds, sockets."""
    return [link for link in links if "memfd" in link or "pidfd" in link or link.startswith("socket")]


def _run_forked(call) -> str:
    """Run a call in a forked child and return what it says, as a DataLoader's worker would run it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(call()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def fork_after_init(rank: int, world_size: int) -> dict[str, str]:
    before = len(_ours(_descriptors()))
    comm = communicator()
    tensor = collectives.empty(1000)
    comm.all_reduce(tensor)
    request = comm.all_reduce(tensor, async_op=True)
    request.wait()
    said = {
        "descriptors": _run_forked(lambda: len(_ours(_descriptors())) - before),
        "all_reduce": _run_forked(lambda: catch(lambda: comm.all_reduce(np.ones(1))).kind),
        "async": _run_forked(lambda: catch(lambda: comm.all_reduce(np.ones(1), async_op=True).wait()).kind),
        "send": _run_forked(lambda: catch(lambda: comm.send(np.ones(1), 0)).kind),
        "split": _run_forked(lambda: catch(lambda: comm.split(0)).kind),
        "new": _run_forked(lambda: catch(lambda: communicator()).kind),
        "close": _run_forked(lambda: catch(lambda: comm.close()).kind),
        "private tensor": _run_forked(lambda: catch(lambda: np.ones(5).sum()).kind),
    }
    total = comm.all_reduce(np.ones(1))  # and the parent goes on
    said["parent"] = str(total[0])
    comm.close()
    return said


def test_a_forked_child_holds_nothing_and_is_told_so() -> None:
    for said in run_ranks(fork_after_init, 2, backend=None, timeout=40):
        assert said == {
            "descriptors": said["descriptors"],
            "all_reduce": "ClosedError",
            "async": "ClosedError",
            "send": "ClosedError",
            "split": "ClosedError",
            "new": "ClosedError",
            "close": "nothing",
            "private tensor": "nothing",
            "parent": "2.0",
        }
        assert int(said["descriptors"]) <= 0


def shared_tensor_and_fork(rank: int, world_size: int) -> dict[str, object]:
    comm = communicator()
    tensor = collectives.empty(5000, "float64")
    tensor.fill_(1.0)
    comm.all_reduce(tensor)
    used = _core.node_info()["heap_used_bytes"]
    kept = [tensor]

    def drop() -> str:
        nonlocal tensor
        tensor = None
        kept.clear()
        gc.collect()
        return "dropped"

    said: dict[str, object] = {
        "reads": _run_forked(lambda: float(tensor.sum())),
        "makes": _run_forked(lambda: _told(lambda: collectives.empty(10))),
        "drops": _run_forked(drop),
        "memfds": _run_forked(lambda: sum("memfd" in link for link in _descriptors())),
    }
    said["the parent's"] = float(tensor.sum())
    said["taken"] = _core.node_info()["heap_used_bytes"] - used
    said["a new one"] = float(collectives.empty(5000, "float64").sum())  # zeroed, and not the one that was dropped
    said["and again"] = float(comm.all_reduce(tensor).sum())
    return said


def _told(call) -> str:
    raised = catch(call)
    return f"{raised.kind}: {raised.text}"


def test_a_forked_child_neither_takes_nor_frees_shared_memory() -> None:
    for said in run_ranks(shared_tensor_and_fork, 2, backend=None, timeout=40):
        assert re.fullmatch(r"ClosedError: .*child made by fork\(\).*spawn.*", str(said.pop("makes")))
        assert said == {
            "reads": "10000.0",
            "drops": "dropped",
            "memfds": "0",
            "the parent's": 10000.0,
            "taken": 0,
            "a new one": 0.0,
            "and again": 20000.0,
        }


def test_a_forked_child_that_ends_in_the_ordinary_way_frees_nothing() -> None:
    code = """
import os, sys
import collectives
from collectives import _core
tensor = collectives.empty(5000)
tensor.fill_(3)
used = _core.node_info()["heap_used_bytes"]
if os.fork() == 0:
    sys.exit(0)  # through the interpreter's end and its exit handlers, the tensor with it
_, status = os.wait()
assert status == 0, status
assert (tensor == 3).all(), tensor
assert _core.node_info()["heap_used_bytes"] == used
print("unchanged")
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "unchanged\n", "")


def worker_outlives_its_rank(rank: int, world_size: int, directory: str) -> tuple[str, float] | None:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        if os.fork() == 0:
            time.sleep(8)
            os._exit(0)
        time.sleep(0.2)
        pathlib.Path(directory, "died").write_text(str(time.monotonic()), encoding="utf-8")
        os.kill(os.getpid(), 9)
    raised = catch(lambda: comm.all_reduce(np.ones(1)))
    died_s = float(pathlib.Path(directory, "died").read_text(encoding="utf-8"))
    return raised.kind, raised.ended_s - died_s


def test_a_worker_that_outlives_its_rank_does_not_keep_it_alive(tmp_path) -> None:
    kind, took_s = run_ranks(worker_outlives_its_rank, 2, str(tmp_path), backend=None, expect_killed={1}, timeout=30)[0]
    assert kind == "PeerFailedError"
    assert took_s < 1.5


def data_loader(rank: int, world_size: int) -> int:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    batches = 0
    data = TensorDataset(torch.arange(64.0))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    for _ in range(2):
        for (batch,) in loader:
            total = batch.sum()
            dist.all_reduce(total)
            batches += 1
    return batches


def test_a_data_loader_with_forked_workers() -> None:
    assert run_ranks(data_loader, 2, timeout=60) == [16, 16]


# ---- exit ------------------------------------------------------------------------------------------------------------


def exit_with_a_group(rank: int, world_size: int) -> bool:
    import torch
    import torch.distributed as dist

    init_process_group()
    dist.all_reduce(torch.ones(3))
    dist.new_group([0])
    return dist.is_initialized()  # and nothing destroys it


def exit_with_a_communicator(rank: int, world_size: int) -> bool:
    global kept
    kept = communicator()
    kept.all_reduce(np.ones(3))
    return True


def exit_with_a_request(rank: int, world_size: int) -> bool:
    global kept
    comm = communicator()
    array = np.ones(2_000_000)
    kept = [comm, array, comm.all_reduce(array, async_op=True)]
    comm.recv(np.ones(1), 1 - rank, async_op=True)  # never matched, and dropped
    return True


def exit_with_a_shared_tensor(rank: int, world_size: int) -> bool:
    global kept
    comm = communicator()
    kept = collectives.empty(100_000)
    comm.all_reduce(kept)
    return True


@pytest.mark.parametrize(
    "scenario", [exit_with_a_group, exit_with_a_communicator, exit_with_a_request, exit_with_a_shared_tensor]
)
def test_exit_without_destroying_anything_is_clean(scenario) -> None:
    # run_ranks fails when a rank's exit status is not 0, or when it does not end.
    began_s = time.monotonic()
    assert run_ranks(scenario, 2, backend=None, timeout=30) == [True, True]
    assert time.monotonic() - began_s < 15


SCRIPT = """
import sys, threading
import numpy as np, torch.distributed as dist, collectives
comm = collectives.Communicator.from_store(dist.HashStore(), 0, 1)
comm.all_reduce(np.ones(3))
{ending}
"""


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("sys.exit(3)", 3),
        ("raise RuntimeError('as it happens')", 1),
        ("import os; os._exit(4)", 4),
        ("threading.Thread(target=lambda: comm.barrier()).start()", 0),
        ("import atexit; atexit.register(lambda: comm.all_reduce(np.ones(3)))", 0),
    ],
)
def test_every_way_to_exit(ending: str, status: int) -> None:
    code = SCRIPT.format(ending=ending)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == status, result.stderr
    assert "collectives" not in result.stderr or "RuntimeError" in result.stderr


# ---- memory and descriptors ------------------------------------------------------------------------------------------


SMALL_SHM = """
import numpy as np, torch, torch.distributed as dist, os, collectives
from collectives.testing import run_ranks, communicator
def work(rank, world_size):
    comm = communicator()
    total = comm.all_reduce(np.ones(16_000_000))  # 128 MB a rank
    shared = collectives.empty(25_000_000, dtype="float32")  # 100 MB a rank
    shared.fill_(1)
    comm.all_reduce(shared)
    dist.init_process_group("collectives", store=dist.FileStore(os.environ["MEETING"], world_size), rank=rank,
                            world_size=world_size)
    tensor = torch.ones(16_000_000)
    dist.all_reduce(tensor)
    return float(total.min()), float(shared.min()), float(tensor.min())
if __name__ == "__main__":
    size = os.statvfs("/dev/shm")
    assert size.f_blocks * size.f_frsize == 64 << 20, size
    print(run_ranks(work, 4, backend=None, timeout=80))
"""


@pytest.mark.needs_root
@pytest.mark.needs_command("unshare", "mount")
def test_a_shm_of_64_mib_is_enough(tmp_path) -> None:
    script = tmp_path / "small_shm.py"
    script.write_text(SMALL_SHM, encoding="utf-8")
    command = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec " + f"{sys.executable} {script}"
    result = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "MEETING": str(tmp_path / "meeting"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == str([(4.0, 4.0, 4.0)] * 4)


def _resident_bytes() -> int:
    return int(pathlib.Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many_groups(rank: int, world_size: int) -> dict[str, int]:
    from collectives import _core

    comm = communicator()
    groups = [comm.split(0) for _ in range(1000)]
    for group in groups[::97]:
        assert group.all_reduce(np.ones(5))[0] == world_size
    for group in groups:
        group.close()
    del groups, group
    gc.collect()
    comm.barrier()
    before = len(_descriptors()), _core.node_info()["segment_used_bytes"], _resident_bytes()
    for _ in range(10):
        for group in [comm.split(rank % 2) for _ in range(10)]:
            group.all_reduce(np.ones(100))
            group.close()
    del group
    gc.collect()
    comm.barrier()
    after = len(_descriptors()), _core.node_info()["segment_used_bytes"], _resident_bytes()
    comm.close()
    return {
        "descriptors": after[0] - before[0],
        "segment_bytes": after[1] - before[1],
        "resident_bytes": after[2] - before[2],
    }


@pytest.mark.deadline(180)
def test_a_thousand_groups_then_a_hundred_more_leak_nothing() -> None:
    for leaked in run_ranks(many_groups, 2, backend=None, timeout=150):
        assert leaked["descriptors"] == 0, leaked
        assert leaked["segment_bytes"] == 0, leaked
        assert leaked["resident_bytes"] < 2 << 20, leaked


def groups_alive_together(rank: int, world_size: int) -> tuple[int, float]:
    comm = communicator()
    comm.barrier()
    before = len(_descriptors())
    groups = [comm.split(0) for _ in range(300)]
    grown = len(_descriptors()) - before
    total = sum(float(group.all_reduce(np.ones(1))[0]) for group in groups)
    return grown, total


def test_a_new_group_costs_no_descriptor() -> None:
    assert run_ranks(groups_alive_together, 2, backend=None, timeout=60) == [(0, 600.0)] * 2


def idle_cpu(rank: int, world_size: int) -> float:
    comm = communicator()
    comm.all_reduce(np.ones(1000))
    comm.all_reduce(np.ones(1000), async_op=True).wait()
    began_s = time.process_time()
    time.sleep(1.5)
    return time.process_time() - began_s


def test_no_cpu_is_burnt_between_operations() -> None:
    for used_s in run_ranks(idle_cpu, 2, backend=None, timeout=30):
        assert used_s < 0.05


def waiting_cpu(rank: int, world_size: int) -> float:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(1.5)
    began_s = time.process_time()
    comm.barrier()
    return time.process_time() - began_s


def test_a_long_wait_sleeps() -> None:
    assert run_ranks(waiting_cpu, 2, backend=None, timeout=30)[0] < 0.15


# ---- groups made after a death, and with little staging left ---------------------------------------------------------


def new_group_with_a_dead_rank(rank: int, world_size: int) -> tuple[str, float] | None:
    import torch
    import torch.distributed as dist

    init_process_group()
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raised = catch(lambda: dist.new_group(timeout=datetime.timedelta(seconds=50)))
    return f"{raised.kind}: {raised.text}", raised.ended_s - raised.began_s


def test_a_new_group_does_not_wait_for_a_rank_that_is_known_to_be_dead() -> None:
    for rank, outcome in enumerate(run_ranks(new_group_with_a_dead_rank, 3, backend=None, expect_killed=(1,))):
        if rank != 1:
            text, took_s = outcome
            assert text.startswith("DistBackendError: ") and "rank 1 (process " in text and "died" in text, text
            assert took_s < 10  # not 50; a second, and what a busy machine adds


def staging_of_many(rank: int, world_size: int) -> list[int]:
    kept = [communicator(name=str(i)) for i in range(12)]
    found = [re.search(r"staging ([0-9]+) KiB", comm.describe()) for comm in kept]
    array = np.ones(1 << 20, np.float32)
    kept[-1].all_reduce(array)
    assert (array == world_size).all()
    return [int(match[1]) for match in found if match]


def test_the_twelfth_group_still_has_staging() -> None:
    for sizes in run_ranks(staging_of_many, 2):
        assert len(sizes) == 12 and min(sizes) >= 16, sizes
