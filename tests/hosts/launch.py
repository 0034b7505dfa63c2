"""Launchers and measurements across the hosts of a rig: torchrun, Open MPI's mpirun, iperf3, a ping-pong."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.hosts.rig import HERE, CommandFailed, Hosts, wait_until

RENDEZVOUS_PORT = 29400
_SERVER_S = 10.0


def torchrun_command(hosts: Hosts, ranks_per_host: int, argv: Sequence[str], options: Sequence[str] = ()) -> list[str]:
    """Return the command that, run on every host, starts a torchrun job there.

    Parameters
    ----------
    hosts : Hosts
        Where.
    ranks_per_host : int
        Processes a host.
    argv : sequence of str
        The script and its arguments.
    options : sequence of str
        More options of torchrun, such as --max-restarts=1.
    """
    endpoint = hosts.address(0)
    endpoint = f"[{endpoint}]" if ":" in endpoint else endpoint
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(hosts)}"]
    launcher += [f"--nproc-per-node={ranks_per_host}", "--rdzv-backend=c10d"]
    launcher += [f"--rdzv-endpoint={endpoint}:{RENDEZVOUS_PORT}", f"--rdzv-id={hosts.layout.rig}"]
    return [*launcher, *options, *argv]


def torchrun(
    hosts: Hosts,
    ranks_per_host: int,
    argv: Sequence[str],
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> list[str]:
    """Run a script under torchrun on all hosts, as a user would, and return what each host printed.

    Raises
    ------
    CommandFailed
        If torchrun failed on a host, or was not done in time (seconds).
    """
    command = torchrun_command(hosts, ranks_per_host, argv, options)
    ended = hosts.run_all(command, env={"OMP_NUM_THREADS": "1", **(env or {})}, timeout=timeout)
    return [each.output for each in ended]


def mpirun_command(
    hosts: Hosts, ranks_per_host: int | Sequence[int], argv: Sequence[str], options: Sequence[str] = ()
) -> list[str]:
    """Return the command that, run on host 0, starts an Open MPI job on all hosts.

    Parameters
    ----------
    hosts : Hosts
        Where.
    ranks_per_host : int or sequence of int
        Processes on each.
    argv : sequence of str
        The program and its arguments.
    options : sequence of str
        More options of mpirun.
    """
    ranks = [ranks_per_host] * len(hosts) if isinstance(ranks_per_host, int) else list(ranks_per_host)
    placed = ",".join(f"{hosts.name(host)}:{count}" for host, count in enumerate(ranks) if count)
    launcher = ["mpirun", "-n", str(sum(ranks)), "--host", placed, "--map-by", "slot", "--bind-to", "none"]
    launcher += ["--prtemca", "plm_ssh_agent", str(HERE / "remote_shell")]
    return [*launcher, *options, *argv]


def mpirun(
    hosts: Hosts,
    ranks_per_host: int | Sequence[int],
    argv: Sequence[str],
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> str:
    """Run a program under Open MPI's mpirun on all hosts and return what it printed.

    Raises
    ------
    CommandFailed
        If mpirun failed or was not done in time (seconds).
    """
    return hosts.check_output(0, mpirun_command(hosts, ranks_per_host, argv, options), env=env, timeout=timeout)


# ---- figures ---------------------------------------------------------------------------------------------------------


def goodput(
    hosts: Hosts, sender: int, receiver: int, *, streams: int = 1, seconds: int = 2, options: Sequence[str] = ()
) -> float:
    """Return the bits per second that iperf3 gets through TCP from one host to another, as the receiver counts them.

    Parameters
    ----------
    hosts : Hosts
        Where.
    sender, receiver : int
        Hosts.
    streams : int
        Connections at once.
    seconds : int
        How long; iperf3 takes no fractions, and 0 is for ever.
    options : sequence of str
        More options of the client, such as --congestion=reno.

    Raises
    ------
    CommandFailed
        If iperf3 failed.
    ValueError
        If `seconds` is no whole number from 1.
    """
    if not isinstance(seconds, int) or seconds < 1:
        raise ValueError(f"seconds: {seconds!r} is no whole number from 1")
    server = hosts.run(receiver, ["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(hosts, receiver, 5201), _SERVER_S, "iperf3's server")
        text = hosts.check_output(
            sender,
            ["iperf3", "--client", hosts.address(receiver), f"--parallel={streams}", f"--time={seconds}",
             "--json", *options],
            timeout=seconds + 20,
        )  # fmt: skip
        server.wait(_SERVER_S)
    finally:
        server.kill()
        server.wait()
    return json.loads(text)["end"]["sum_received"]["bits_per_second"]


def listens(hosts: Hosts, host: int, port: int) -> bool:
    """Tell whether a process on a host listens on this TCP port."""
    lines: list[str] = []
    for table in ("tcp", "tcp6"):
        lines += pathlib.Path(f"/proc/{hosts.pid(host)}/net/{table}").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return any(field[3] == "0A" and int(field[1].rpartition(":")[2], 16) == port for field in fields)


@dataclass(frozen=True)
class RoundTrip:
    """Times of a message there and back, in seconds.

    Attributes
    ----------
    median, best, p99 : float
        Over all rounds.
    """

    median: float
    best: float
    p99: float


def round_trip(
    hosts: Hosts, one: int, other: int, *, size_bytes: int = 8, rounds: int = 5000, spins: bool = False
) -> RoundTrip:
    """Measure a ping-pong of two processes over one TCP connection with TCP_NODELAY.

    Parameters
    ----------
    hosts : Hosts
        Where.
    one, other : int
        Hosts.
    size_bytes, rounds : int
        Of a message; how many.
    spins : bool
        Ask for data again and again rather than sleep until it comes. A core that sleeps takes its time to wake, in a
        virtual machine several times as long as the message takes.
    """
    script = str(HERE / "ping_pong.py")
    arguments = [hosts.address(other), str(size_bytes), str(rounds), "spin" if spins else "wait"]
    server = hosts.run(other, [sys.executable, "-S", "-E", script, "serve", *arguments])
    try:
        wait_until(lambda: listens(hosts, other, 5202), _SERVER_S, "the ping-pong's server")
        text = hosts.check_output(one, [sys.executable, "-S", "-E", script, "call", *arguments], timeout=60)
    finally:
        server.kill()
        server.wait()
    times = sorted(json.loads(text))
    return RoundTrip(statistics.median(times), times[0], times[int(len(times) * 0.99)])


def figures(hosts: Hosts, *, seconds: int = 2) -> dict[str, Any]:
    """Return the bounds of a rig of at least two hosts: goodput with 1 and 4 streams, and the round trip of 8 bytes."""
    if len(hosts) < 2:
        raise ValueError("figures need two hosts")
    measured: dict[str, Any] = {"congestion_control": hosts.check_output(
        0, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]).strip()}  # fmt: skip
    for streams in (1, 4):
        measured[f"goodput_{streams}_bits_per_second"] = goodput(hosts, 0, 1, streams=streams, seconds=seconds)
    for spins, name in ((False, "waiting"), (True, "spinning")):
        trip = round_trip(hosts, 0, 1, spins=spins)
        measured |= {f"round_trip_{name}_{which}_s": value for which, value in vars(trip).items()}
    return measured


__all__ = [
    "CommandFailed",
    "RoundTrip",
    "figures",
    "goodput",
    "listens",
    "mpirun",
    "mpirun_command",
    "round_trip",
    "torchrun",
    "torchrun_command",
]
