"""from_env under torchrun, mpirun and without a launcher; from_mpi; what the error says that found no way."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from collectives import _rendezvous

PROGRAM = """
import sys
{before}
import numpy as np, collectives
comm = collectives.Communicator.from_env(timeout=30)
total = comm.all_reduce(np.array([comm.rank + 1.0]))
half = comm.split(comm.rank % 2)
again = collectives.Communicator.from_env(timeout=30)  # a second group of the same job
again.barrier()
open(f"said.{{comm.rank}}", "w").write(f"rank {{comm.rank}} of {{comm.world_size}}: {{total[0]}} {{half.world_size}}")
for group in (half, again, comm):
    group.close()
"""
FROM_MPI = """
import numpy as np, collectives
from mpi4py import MPI
world = MPI.COMM_WORLD
some = world.Split(0, -world.Get_rank())  # the ranks in reverse
with collectives.Communicator.from_mpi(some, timeout=30) as comm:
    assert comm.rank == world.Get_size() - 1 - world.Get_rank()
    total = comm.all_reduce(np.array([comm.rank + 1.0]))
    half = comm.split(comm.rank % 2)
    open(f"said.{comm.rank}", "w").write(f"rank {comm.rank} of {comm.world_size}: {total[0]} {half.world_size}")
"""
# One group after the other in the same job: its meeting file must outlive each of them.
ONE_AFTER_THE_OTHER = """
import gc, glob, os, sys, tempfile
sys.modules['mpi4py'] = None
import numpy as np, collectives
for i in range(30):
    comm = collectives.Communicator.from_env(timeout=20)
    assert comm.all_reduce(np.ones(1))[0] == comm.world_size
    (path,) = glob.glob(tempfile.gettempdir() + "/collectives-*/*")
    if i == 0:
        first = open(path)  # held open, so that its inode is not used again
    assert os.path.samestat(os.stat(path), os.fstat(first.fileno())), "the file was made anew"
    rank = comm.rank
    comm.close()
    del comm
    gc.collect()
open(f"said.{rank}", "w").write(f"rank {rank} is done")
"""
WITHOUT_MPI4PY = "sys.modules['mpi4py'] = None"


def run(command: list[str], tmp_path: pathlib.Path, program: str, **environ: str) -> list[str]:
    """Run a program under a launcher; return what its ranks said, sorted.

    They leave it in files: a launcher may lose the last line of a rank that ends at once.
    """
    for left in tmp_path.glob("said.*"):
        left.unlink()
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    result = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**clean_environment(), "TMPDIR": str(tmp_path), **environ},
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stdout + result.stderr[-4000:]
    return sorted(said.read_text(encoding="utf-8") for said in tmp_path.glob("said.*"))


def clean_environment() -> dict[str, str]:
    """Return the environment without what a launcher of this very test may have set."""
    prefixes = ("OMPI_COMM", "PMI", "SLURM", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "COLLECTIVES_STORE")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def expected(world_size: int) -> list[str]:
    total = float(world_size * (world_size + 1) // 2)
    return [f"rank {r} of {world_size}: {total} {len(range(r % 2, world_size, 2))}" for r in range(world_size)]


def mpirun(world_size: int) -> list[str]:
    # The environment's own mpirun, which its mpi4py goes with.
    program = shutil.which("mpirun", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
    assert program is not None
    return [program, "--oversubscribe", "-n", str(world_size), sys.executable]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_torchrun(tmp_path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    assert run(command, tmp_path, PROGRAM.format(before="")) == expected(3)


@pytest.mark.needs("mpi4py")
@pytest.mark.needs_command("mpirun")
def test_mpirun_through_mpi4py(tmp_path) -> None:
    assert run(mpirun(3), tmp_path, PROGRAM.format(before="")) == expected(3)


@pytest.mark.needs_command("mpirun")
def test_mpirun_through_a_file_of_the_host(tmp_path) -> None:
    assert run(mpirun(2), tmp_path, PROGRAM.format(before=WITHOUT_MPI4PY)) == expected(2)
    assert run(mpirun(2), tmp_path, PROGRAM.format(before=WITHOUT_MPI4PY)) == expected(2), "a second job"
    (directory,) = tmp_path.glob("collectives-*")
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.needs_command("mpirun")
def test_groups_one_after_the_other_through_a_file_of_the_host(tmp_path) -> None:
    assert run(mpirun(2), tmp_path, ONE_AFTER_THE_OTHER) == ["rank 0 is done", "rank 1 is done"]


@pytest.mark.needs_command("mpirun")
def test_mpirun_through_an_address(tmp_path) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert run(mpirun(2), tmp_path, PROGRAM.format(before=""), COLLECTIVES_STORE=address) == expected(2)


@pytest.mark.needs("mpi4py")
@pytest.mark.needs_command("mpirun")
def test_from_mpi(tmp_path) -> None:
    assert run(mpirun(3), tmp_path, FROM_MPI) == expected(3)


def test_the_error_says_what_was_tried(monkeypatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)
    with pytest.raises(RuntimeError) as caught:
        _rendezvous.from_environment(1.0, {})
    for words in ("torchrun: RANK and WORLD_SIZE are not set", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID",
                  "COLLECTIVES_STORE=host:port"):  # fmt: skip
        assert words in str(caught.value)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(RuntimeError) as caught:
        _rendezvous.from_environment(1.0, {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"})
    for words in ("srun: rank 1 of 4", "mpi4py: ", "an unknown number of the 4 ranks", "MASTER_ADDR"):
        assert words in str(caught.value), caught.value


def test_launchers_are_recognised() -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_ID": "77",
             "SLURM_STEP_ID": "2"}  # fmt: skip
    launch = _rendezvous.find_launch(slurm)
    assert (launch.launcher, launch.rank, launch.world_size, launch.local_size) == ("srun", 1, 4, 4)
    assert launch.job.startswith("77-2")
    intel = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1", "I_MPI_HYDRA_UUID": "ab"}
    launch = _rendezvous.find_launch({**slurm, **intel})  # mpirun within an allocation: the inner launcher counts
    assert (launch.launcher, launch.world_size, launch.local_size) == ("mpirun (MPICH or Intel MPI)", 2, 1)
    mpich = _rendezvous.find_launch({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"})
    assert mpich.job.startswith(f"parent-{os.getppid()}-")
    assert _rendezvous.find_launch({"PATH": "/bin"}) is None


def test_a_directory_of_somebody_else_is_not_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(_rendezvous.tempfile, "gettempdir", lambda: str(tmp_path))
    directory = tmp_path / f"collectives-{os.getuid()}"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    tried: list[str] = []
    launch = _rendezvous.Launch("mpirun", 0, 2, 2, "job")
    assert _rendezvous._job_file(launch, tried) is None
    assert "not a directory of this user alone" in tried[0]
    directory.chmod(0o700)
    assert _rendezvous._job_file(launch, tried) is not None


# The exception that from_env raises, and how long it took, as JSON.
NOBODY_LISTENS = """
import json, os, signal, sys, threading, time
import collectives
if os.environ.get("INTERRUPT"):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    collectives.Communicator.from_env(timeout=float(sys.argv[1]))
except BaseException as error:
    print(json.dumps([type(error).__name__, str(error), time.monotonic() - began]))
"""


@contextlib.contextmanager
def address(kind: str) -> Iterator[str]:
    """Where nobody listens; where somebody does who is no store and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "mute":
            listener.listen(8)
        yield str(listener.getsockname()[1])


def from_env(timeout: float, **environ: str) -> tuple[str, str, float]:
    result = subprocess.run(
        [sys.executable, "-c", NOBODY_LISTENS, str(timeout)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean_environment(), **environ},
    )
    assert result.returncode == 0, result.stderr
    kind, text, took_s = json.loads(result.stdout)
    assert "Traceback" not in result.stderr and "frame #" not in result.stderr, result.stderr
    return kind, text, took_s


def launched_by(launcher: str, port: str, rank: int) -> dict[str, str]:
    if launcher == "torchrun":
        return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
    return {**ranks, "COLLECTIVES_STORE": f"127.0.0.1:{port}"}


@pytest.mark.parametrize("kind", ["closed", "mute"])
@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_a_store_that_never_answers_is_a_timeout(launcher: str, kind: str) -> None:
    with address(kind) as port:
        raised, text, took_s = from_env(1.5, **launched_by(launcher, port, 1))
    assert raised == "CollectiveTimeoutError", text
    assert "rank 1 of 2 waited 1.5 s" in text and f"127.0.0.1:{port}" in text, text
    assert 1.4 < took_s < 2.4, took_s


@pytest.mark.parametrize("kind", ["closed", "mute"])
def test_ctrl_c_while_the_store_does_not_answer(kind: str) -> None:
    with address(kind) as port:
        raised, text, took_s = from_env(30, INTERRUPT="1", **launched_by("torchrun", port, 1))
    assert raised == "KeyboardInterrupt", text
    assert took_s < 1.5


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_a_rank_that_does_not_come_to_the_store_is_named_in_time(launcher: str) -> None:
    with address("closed") as port:
        pass
    raised, text, took_s = from_env(1.5, **launched_by(launcher, port, 0))
    assert raised == "CollectiveTimeoutError", text
    assert "for rank 1 of 2 to join" in text, text
    assert took_s < 2.4


def test_a_port_in_use_is_an_error_of_the_library() -> None:
    with address("mute") as port:
        raised, text, took_s = from_env(20, **launched_by("mpirun", port, 0))
    assert raised == "CollectivesError", text
    assert f"could not listen on 127.0.0.1:{port}" in text and took_s < 10, text


def test_a_timeout_that_makes_no_sense_is_refused_before_anything() -> None:
    for value in (-1, float("nan")):
        assert from_env(value, **launched_by("torchrun", "1", 1))[:2] == (
            "ValueError",
            f"timeout: must be at least 0 seconds, got {float(value)!r}",
        )
