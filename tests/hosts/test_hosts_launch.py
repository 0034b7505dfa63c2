"""torchrun and mpirun across hosts, as users run them, and the command line of the rig."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests.hosts import CommandFailed, Hosts, mpirun, torchrun

pytestmark = pytest.mark.usefixtures("possible")
ROOT = pathlib.Path(__file__).resolve().parents[2]
REDUCE = """
import socket, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(total)
# In one write: under `python -u`, which torchrun uses, print() writes the end of the line apart.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} on {socket.gethostname()}: {int(total)}\\n")
dist.barrier()
dist.destroy_process_group()
"""


def test_gloo_under_torchrun_on_two_hosts(tmp_path) -> None:
    script = tmp_path / "reduce.py"
    script.write_text(REDUCE)
    with Hosts(2) as hosts:
        output = torchrun(hosts, 2, [str(script)])
    said = [{line for line in text.splitlines() if line.startswith("rank")} for text in output]
    # Which host gets the first ranks is torchrun's choice.
    ranks = sorted(int(line.split()[1]) for lines in said for line in lines)
    assert ranks == [0, 1, 2, 3], output
    for host, lines in enumerate(said):
        assert all(line.endswith(f"of 4 on host{host}: 15") for line in lines), output


@pytest.mark.needs_command("mpirun")
def test_mpirun_on_three_hosts() -> None:
    with Hosts(3) as hosts:
        command = ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname) $(readlink /proc/self/ns/net)"]
        lines = sorted(mpirun(hosts, [2, 1, 1], command).splitlines())
        assert [line.rpartition(" ")[0] for line in lines] == ["0 host0", "1 host0", "2 host1", "3 host2"]
        assert len({line.split()[2] for line in lines}) == 3


SUM = """
import socket
import collectives
import numpy as np

with collectives.Communicator.from_env() as comm:
    for count in (4, 300_000):
        array = np.full(count, 2.0 ** comm.rank)
        comm.all_reduce(array)
        assert (array == 2.0 ** comm.world_size - 1).all(), array
    print(f"rank {comm.rank} of {comm.world_size} on {socket.gethostname()}: {array[0]:g}, {comm.describe()}")
"""


@pytest.mark.needs("mpi4py")
@pytest.mark.needs_command("mpirun")
@pytest.mark.parametrize("ranks", [[2, 2], [1, 2, 1]], ids=str)
def test_a_communicator_under_mpirun_across_hosts(ranks: list[int], tmp_path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    with Hosts(len(ranks)) as hosts:
        output = mpirun(hosts, ranks, [sys.executable, str(script)])
    lines = sorted(line for line in output.splitlines() if line.startswith("rank"))
    placed = [host for host, count in enumerate(ranks) for _ in range(count)]
    for rank, host in enumerate(placed):
        expected = f"rank {rank} of {len(placed)} on host{host}: {2 ** len(placed) - 1}, transport tcp: listens on eth0"
        assert lines[rank].startswith(expected), output


@pytest.mark.needs_command("mpirun")
def test_a_communicator_under_mpirun_meets_at_an_address(tmp_path) -> None:
    script = tmp_path / "sum.py"
    script.write_text("import sys; sys.modules['mpi4py'] = None\n" + SUM)  # as where it is not installed
    with Hosts(2) as hosts:
        store = f"{hosts.address(0)}:29555"
        output = mpirun(hosts, 1, [sys.executable, str(script)], options=["-x", f"COLLECTIVES_STORE={store}"])
    assert output.count("of 2 on host") == 2 and output.count(": 3, transport tcp") == 2, output


@pytest.mark.needs("mpi4py")
@pytest.mark.needs_command("mpirun")
def test_mpi_messages_cross_the_network() -> None:
    script = "from mpi4py import MPI; print(MPI.COMM_WORLD.allgather(MPI.Get_processor_name()))"
    received = "/sys/class/net/eth0/statistics/rx_bytes"
    with Hosts(2) as hosts:
        assert mpirun(hosts, 1, [sys.executable, "-c", script]).splitlines() == ["['host0', 'host1']"] * 2
        assert int(hosts.check_output(1, ["cat", received])) > 1000


@pytest.mark.needs_command("mpirun")
def test_a_failure_under_mpirun_is_an_error() -> None:
    with Hosts(2) as hosts:
        with pytest.raises(CommandFailed, match="no such luck"):
            mpirun(hosts, 1, ["sh", "-c", "echo no such luck >&2; exit 7"])


# ---- the command line ------------------------------------------------------------------------------------------------


def command_line(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.hosts", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_lines_are_prefixed_and_the_first_failure_is_the_status() -> None:
    script = "echo {host} of {hosts} at {address0}; if [ $HOST_INDEX = 1 ]; then sleep 1; exit 5; fi; exec sleep 60"
    began_s = time.monotonic()
    result = command_line("--hosts", "3", "--", "sh", "-c", script)
    assert result.returncode == 5, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"host{i}: {i} of 3 at 10.77.0.1" for i in range(3)]
    assert time.monotonic() - began_s < 20


def test_the_status_of_a_signal_a_timeout_and_success() -> None:
    assert command_line("--", "sh", "-c", "kill -9 $$").returncode == 137
    assert command_line("--timeout", "0.5", "--", "sleep", "60").returncode == 124
    assert command_line("--loss", "0.001", "--rate", "1gbit", "--", "true").returncode == 0


def test_one_host_alone_has_the_terminal() -> None:
    result = command_line("--hosts", "2", "--on", "1", "--", "sh", "-c", "hostname; echo apart >&2; exit 4")
    assert (result.returncode, result.stdout, result.stderr) == (4, "host1\n", "apart\n")


@pytest.mark.needs_command("mpirun")
def test_launchers_from_the_command_line(tmp_path) -> None:
    result = command_line("--hosts", "2", "--mpirun", "2", "--", "hostname")
    assert sorted(result.stdout.split()) == ["host0"] * 2 + ["host1"] * 2, result.stderr
    script = tmp_path / "say.py"
    script.write_text("import os; print(os.environ['WORLD_SIZE'])")
    result = command_line("--hosts", "2", "--ipv6", "--torchrun", "1", "--", str(script))
    assert result.returncode == 0, result.stdout
    assert {"host0: 2", "host1: 2"} <= set(result.stdout.splitlines())


@pytest.mark.needs_command("iperf3")
def test_figures_are_printed() -> None:
    found = json.loads(command_line("--rate", "100mbit", "--figures", "--seconds", "1").stdout)
    assert 50e6 < found["goodput_1_bits_per_second"] < 100e6
    assert 50e6 < found["goodput_4_bits_per_second"] < 100e6
    assert 0 < found["round_trip_spinning_best_s"] < found["round_trip_waiting_p99_s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hosts", "0", "--", "true"], "hosts: 0 is not between 1 and 200"),
        (["--rate", "fast", "--", "true"], "rate 'fast': give bits per second"),
        (["--hosts", "2"], "no command"),
        (["--on", "5", "--", "true"], "host 5: there are hosts 0 to 1"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    result = command_line(*arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_command_that_is_not_there_fails() -> None:
    result = command_line("--", "no-such-program")
    assert result.returncode == 127
    assert "no-such-program" in result.stdout


def test_without_root_the_reason_is_said() -> None:
    if os.geteuid() != 0 or not pathlib.Path("/usr/bin/setpriv").exists():
        pytest.skip("needs root and setpriv")
    script = "from tests.hosts import why_not; print(why_not())"
    command = ["setpriv", "--reuid=65534", sys.executable, "-c", script]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout == "needs root (network namespaces)\n", result.stderr
