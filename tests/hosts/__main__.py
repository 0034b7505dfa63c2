"""`python -m tests.hosts`: run a command on every host of a rig; see docs/hosts.md."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.hosts import launch
from tests.hosts.output import Follower, Lines
from tests.hosts.rig import CommandFailed, Hosts, HostsError, why_not

EPILOGUE = """\
The command's arguments may contain {host} {hosts} {name} {address} {address0} {address1} ...; its environment has
HOST_INDEX, HOST_COUNT, HOST_ADDRESS and HOST0_ADDRESS. The exit status is the first that is not 0 (128 and the signal's
number for a signal); the commands on the other hosts are then ended.

  python -m tests.hosts --hosts 2 --rate 1gbit --torchrun 2 -- train.py
  python -m tests.hosts --hosts 3 --mpirun 2 -- python bench/run.py
  python -m tests.hosts --hosts 2 --on 0 -- bash
  python -m tests.hosts --hosts 2 --rate 10gbit --figures
"""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hosts",
        description="Run a command on several hosts made of network namespaces (needs root).",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many (default 2)")
    parser.add_argument("--rate", metavar="RATE", help="of every link, each way: 1gbit, 100mbit (default: not shaped)")
    parser.add_argument("--loss", type=float, default=0.0, metavar="P", help="probability of losing a packet")
    parser.add_argument("--ipv6", action="store_true", help="IPv6 only (default: both, and names lead to IPv4)")
    parser.add_argument("--mtu", type=int, default=1500, metavar="BYTES", help="of an IP packet (default 1500)")
    parser.add_argument("--congestion", metavar="NAME", help="control of TCP, such as reno (default: the machine's)")
    parser.add_argument("--seconds", type=int, default=2, metavar="S", help="of each run of --figures (default 2)")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end everything after this time, with status 124"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--on", type=int, metavar="HOST", help="run the command on this host alone, on this terminal")
    way.add_argument("--torchrun", type=int, metavar="RANKS", help="the command is a script for torchrun, RANKS a host")
    way.add_argument("--mpirun", type=int, metavar="RANKS", help="the command is a program for mpirun, RANKS a host")
    way.add_argument("--figures", action="store_true", help="print what the network gives: iperf3 and a ping-pong")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- command ...")
    options = parser.parse_args(argv)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if bool(options.command) == options.figures:
        parser.error("--figures takes no command" if options.figures else "no command: put one after --")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Make the rig, run the command, remove the rig; return the exit status."""
    options = arguments(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if reason := why_not():
        print(f"tests.hosts: {reason}", file=sys.stderr)
        return 2
    try:
        shape = {name: getattr(options, name) for name in ("rate", "loss", "ipv6", "mtu", "congestion")}
        with Hosts(options.hosts, **shape) as hosts:
            return run(hosts, options)
    except (ValueError, HostsError, CommandFailed) as error:
        print(f"tests.hosts: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def run(hosts: Hosts, options: argparse.Namespace) -> int:
    """Do what the command line asks for on these hosts."""
    command = options.command
    if options.figures:
        print(json.dumps(launch.figures(hosts, seconds=options.seconds), indent=1))
        return 0
    if options.on is not None:
        return follow([hosts.run(options.on, command, start_new_session=False)], [""], options.timeout)
    if options.mpirun is not None:
        command = launch.mpirun_command(hosts, options.mpirun, command)
        return follow([hosts.run(0, command, stdin=subprocess.DEVNULL)], [""], options.timeout)
    if options.torchrun is not None:
        command = launch.torchrun_command(hosts, options.torchrun, command)
    processes = [
        hosts.run(host, command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for host in range(len(hosts))
    ]
    return follow(processes, [f"{hosts.name(host)}: " for host in range(len(hosts))], options.timeout)


def follow(processes: list[subprocess.Popen[bytes]], prefixes: list[str], timeout: float | None) -> int:
    """Show what they print; return the first failure's status."""

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    lines = Lines(prefixes, write)
    follower = Follower(processes, lines.said)
    in_time = follower.wait(timeout)
    lines.finish()
    if follower.first_failure is not None and in_time:
        status = processes[follower.first_failure].returncode
        return status if status > 0 else 128 - status
    return 0 if in_time else 124


if __name__ == "__main__":
    sys.exit(main())
