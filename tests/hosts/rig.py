"""`Hosts`: a few hosts on one network, made of namespaces, for tests that need more than one.

See docs/hosts.md. The namespaces are made, held and removed by a process of its own (keeper.py), so that a rig whose
owner is killed leaves nothing behind; what a killed keeper left, the next rig removes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.hosts import namespaces
from tests.hosts.layout import SWITCH_SYSCTLS, Layout, parse_rate
from tests.hosts.output import Ended, collect

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("ip", "tc", "iptables-restore", "ip6tables-restore", "nsenter")
_SBIN = "/usr/sbin:/sbin"
_START_S = 30.0


class HostsError(RuntimeError):
    """The rig could not be made or changed."""


class CommandFailed(AssertionError):
    """A command on a host failed or was not done in time; the message has what all of them printed."""


def search_path() -> str:
    """Return PATH with this Python's programs first, and those of the administrator last."""
    return f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}:{_SBIN}"


@functools.cache
def why_not(*programs: str) -> str | None:
    """Say why no rig can be made here; None where one can.

    Parameters
    ----------
    *programs : str
        Further programs that the caller needs.
    """
    if os.geteuid() != 0:
        return "needs root (network namespaces)"
    for program in (*PROGRAMS, *programs):
        if shutil.which(program, path=search_path()) is None:
            return f"needs the program {program} (scripts/system-packages installs it)"
    try:
        with Hosts(1, rate="1gbit", loss=0.1):
            return None
    except (HostsError, OSError) as error:
        return f"cannot make hosts out of namespaces: {error}"


class Hosts:
    """A context manager: hosts `host0`, `host1`, ... on one network.

    Parameters
    ----------
    count : int
        Hosts.
    rate : str, float or sequence of these, optional
        What each host's link carries in each direction ("1gbit"); a sequence has one entry a host, None for a link that
        is not shaped. Counted in bytes of Ethernet frames without preamble and gap: TCP gets 95.6 % of it (94.3 % over
        IPv6) at the usual MTU.
    loss : float
        The probability with which a host loses a packet that it receives.
    ipv6 : bool
        IPv6 only. Otherwise hosts have both, and names lead to IPv4.
    mtu : int
        Bytes of an IP packet.
    congestion : str, optional
        TCP's congestion control on the hosts, one of the machine's net.ipv4.tcp_allowed_congestion_control (a namespace
        may choose no other); the machine's own choice where it is None.

    Raises
    ------
    ValueError
        From the constructor, if the shape makes no sense.
    HostsError
        On entering, if the namespaces could not be made.
    """

    def __init__(
        self,
        count: int,
        *,
        rate: str | float | Sequence[str | float | None] | None = None,
        loss: float = 0.0,
        ipv6: bool = False,
        mtu: int = 1500,
        congestion: str | None = None,
    ) -> None:
        rates = [rate] * count if rate is None or isinstance(rate, str | int | float) else list(rate)
        parsed = tuple(None if each is None else parse_rate(each) for each in rates)
        self._layout = Layout("", count, parsed, loss, ipv6, mtu, congestion)
        self._keeper: subprocess.Popen[str] | None = None
        self._pids: list[int] = []  # of the process that holds each host's namespaces

    def __len__(self) -> int:
        return self._layout.count

    def __enter__(self) -> Hosts:
        for rig in namespaces.abandoned():
            namespaces.remove(rig)
        rig = _claim_name()
        self._layout = Layout(**{**vars(self._layout), "rig": rig})
        try:
            for host in range(len(self)):
                folder = namespaces.CONFIGURATION / self.namespace(host)
                _make_folder(folder)
                for name, text in self._layout.configuration(host).items():
                    (folder / name).write_text(text)
            self._start_keeper()
            self._pids = [int((self.directory / self.name(host)).read_text()) for host in range(len(self))]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything that runs on the hosts, and remove them; done by leaving the `with`, and when this ends."""
        keeper, self._keeper = self._keeper, None
        self._pids = []
        if keeper is not None:
            assert keeper.stdin is not None and keeper.stdout is not None
            keeper.stdin.close()
            keeper.stdout.close()
            keeper.wait()
        if self._layout.rig:
            namespaces.remove(self._layout.rig)  # nothing is left to do, unless the keeper was killed

    def _start_keeper(self) -> None:
        self._keeper = keeper = subprocess.Popen(
            [sys.executable, "-S", "-E", str(HERE / "keeper.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{_SBIN}"},
            start_new_session=True,
        )
        assert keeper.stdin is not None and keeper.stdout is not None
        keeper.stdin.write(json.dumps(self._specification()) + "\n")
        keeper.stdin.flush()
        answer = keeper.stdout.readline()
        if answer != "ready\n":
            raise HostsError(f"the rig was not made: {answer.removeprefix('error: ')}{keeper.stdout.read()}".strip())

    def _specification(self) -> dict[str, Any]:
        layout = self._layout
        switch = {"name": "switch", "namespace": layout.switch, "sysctls": SWITCH_SYSCTLS, "loss": "", "shape": "",
                  "links": layout.switch_links(), "ports": layout.switch_ports(),
                  "shape_ports": layout.switch_shape()}  # fmt: skip
        hosts = [
            {"name": self.name(host), "namespace": self.namespace(host), "sysctls": layout.host_sysctls(),
             "loss": layout.loss_rules(), "shape": layout.host_shape(host), "links": layout.host_links(host)}
            for host in range(len(self))
        ]  # fmt: skip
        return {"rig": layout.rig, "owner": os.getpid(), "switch": switch, "hosts": hosts}

    # ---- names -------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> pathlib.Path:
        """The folder with one file a host that holds a process id; remote_shell looks hosts up there."""
        return namespaces.STATE / self._layout.rig

    @property
    def layout(self) -> Layout:
        """The shape of the rig."""
        return self._layout

    def name(self, host: int) -> str:
        """Return a host's hostname, which all hosts can resolve."""
        return self._layout.name(host)

    def namespace(self, host: int) -> str:
        """Return the name of a host's network namespace, for `ip netns exec`."""
        return self._layout.namespace(host)

    def address(self, host: int, version: int | None = None) -> str:
        """Return a host's address: the one its name leads to, or that of IP version 4 or 6."""
        return self._layout.address(host, version)

    def pid(self, host: int) -> int:
        """Return the process that holds a host's namespaces, for nsenter and `namespaces.enter`."""
        if not self._pids:
            raise HostsError("the hosts are made on entering the context manager")
        return self._pids[self._layout.checked(host)]

    # ---- commands ----------------------------------------------------------------------------------------------------

    def environment(self, host: int, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of commands on a host: this process's, where it is, and `env`."""
        return {
            **os.environ,
            "PATH": search_path(),
            "HOST_INDEX": str(host),
            "HOST_COUNT": str(len(self)),
            "HOST_ADDRESS": self.address(host),
            "HOST0_ADDRESS": self.address(0),
            "HOSTS_DIRECTORY": str(self.directory),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **(env or {}),
        }

    def fill_in(self, host: int, argv: Sequence[str]) -> list[str]:
        """Return a command with {host}, {hosts}, {name}, {address}, {address0}, {address1}, ... filled in."""
        values = {"host": str(host), "hosts": str(len(self)), "name": self.name(host), "address": self.address(host)}
        values |= {f"address{other}": self.address(other) for other in range(len(self))}
        filled = []
        for argument in argv:
            for key, value in values.items():  # not str.format: a command may have braces of its own
                argument = argument.replace("{" + key + "}", value)
            filled.append(argument)
        return filled

    def run(
        self, host: int, argv: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command on a host.

        Parameters
        ----------
        host : int
            Which.
        argv : sequence of str
            The command. Programs are looked for beside this Python first. Placeholders: see `fill_in`.
        env : mapping, optional
            Added to its environment.
        **options
            Of subprocess.Popen. The process begins a session of its own unless start_new_session says otherwise.

        Returns
        -------
        subprocess.Popen
            Of the command itself: its `pid` is the command's.
        """
        options.setdefault("start_new_session", True)
        directory = os.path.abspath(options.pop("cwd", None) or os.getcwd())
        enter = [*self.entering(host), "env", f"--chdir={directory}"]
        return subprocess.Popen([*enter, *self.fill_in(host, argv)], env=self.environment(host, env), **options)

    def entering(self, host: int) -> list[str]:
        """Return the beginning of a command that runs the rest on a host."""
        program = shutil.which("nsenter", path=search_path()) or "nsenter"
        return [program, f"--target={self.pid(host)}", "--net", "--uts", "--mount", "--"]

    def check_output(self, host: int, argv: Sequence[str], *, timeout: float = 30, **options: Any) -> str:
        """Run a command on a host to its end and return what it printed on both streams.

        Raises
        ------
        CommandFailed
            If its status is not 0, or it was not done in time (seconds).
        """
        return self._check([self._start_captured(host, argv, **options)], timeout, [host])[0].output

    def run_all(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 60, check: bool = True
    ) -> list[Ended]:
        """Run a command on every host at once, to the end; when one fails, the others are ended.

        Parameters
        ----------
        argv : sequence of str
            With placeholders: see `fill_in`.
        env : mapping, optional
            Added to the environment.
        timeout : float
            Seconds for all of it.
        check : bool
            Raise if one failed.

        Returns
        -------
        list of Ended
            Status and output of each, in host order.

        Raises
        ------
        CommandFailed
            If one was not done in time or, with `check`, failed.
        """
        processes = [self._start_captured(host, argv, env=env) for host in range(len(self))]
        if check:
            return self._check(processes, timeout, range(len(self)))
        return collect(processes, timeout)

    def _start_captured(self, host: int, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return self.run(
            host, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )

    def _check(self, processes: list[subprocess.Popen[Any]], timeout: float, hosts: Sequence[int]) -> list[Ended]:
        all_ended = collect(processes, timeout)
        if any(ended.status != 0 or ended.timed_out for ended in all_ended):
            parts = []
            for host, ended in zip(hosts, all_ended, strict=True):
                how = f"not done after {timeout:g} s" if ended.timed_out else f"status {ended.status}"
                parts.append(f"---- {self.name(host)}: {how}\n{ended.output}")
            raise CommandFailed("\n".join(parts))
        return all_ended

    # ---- faults ------------------------------------------------------------------------------------------------------

    def link_down(self, host: int) -> None:
        """Pull a host's cable: both ends see that the carrier is gone. Addresses and connections stay."""
        self._switch("ip", "link", "set", f"port{self._layout.checked(host)}", "down")

    def link_up(self, host: int) -> None:
        """Plug a host in again, after `link_down` or `blackhole`."""
        port = f"port{self._layout.checked(host)}"
        self._switch("ip", "link", "set", port, "up")
        self._switch("bridge", "link", "set", "dev", port, "state", "3")

    def blackhole(self, host: int) -> None:
        """Drop everything from and to a host, in the switch: neither side is told, so its peers are half open.

        By the state of the bridge's port rather than by iptables on the host, because a host's own rules give its
        senders an error (EPERM), which a real network does not.
        """
        self._switch("bridge", "link", "set", "dev", f"port{self._layout.checked(host)}", "state", "0")

    def dropped_packets(self, host: int) -> int:
        """Return how many packets the `loss` of a host has dropped so far, over both IP versions."""
        total = 0
        for program in ("iptables-save", "ip6tables-save"):
            rules = self.check_output(host, [program, "-c"])
            total += sum(int(line[1 : line.index(":")]) for line in rules.splitlines() if "--mode random" in line)
        return total

    def _switch(self, *command: str) -> None:
        pid = int((self.directory / "switch").read_text())
        enter = ["nsenter", f"--target={pid}", "--net", "--"]
        result = subprocess.run(
            [*enter, *command], env={**os.environ, "PATH": search_path()}, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise HostsError(f"{' '.join(command)} failed in the switch: {result.stderr.strip()}")


def _claim_name() -> str:
    """Make the folder of a new rig; its name has this process's id, so that a later rig can tell whether it is gone."""
    namespaces.NAMED.mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        rig = f"{namespaces.PREFIX}{os.getpid()}-{number}"
        with contextlib.suppress(FileExistsError):
            folder = namespaces.STATE / rig
            _make_folder(folder)
            (folder / "owner.new").write_text(namespaces.start_time(os.getpid()) or "")
            (folder / "owner.new").rename(folder / "owner")  # nobody is to read half of it
            return rig
    raise AssertionError("unreachable")


def _make_folder(folder: pathlib.Path) -> None:
    """Make a folder and its parent, which the end of another rig may remove meanwhile, as long as it is empty."""
    for _ in range(100):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            folder.mkdir()
            return
    raise HostsError(f"cannot make {folder}")


def wait_until(condition: Any, timeout: float = 5.0, what: str = "the condition") -> Any:
    """Return the first true value of a function, asked again and again.

    Raises
    ------
    TimeoutError
        If there was none in `timeout` seconds.
    """
    for _ in _ticks(timeout):
        if value := condition():
            return value
    raise TimeoutError(f"{what} did not come about within {timeout:g} s")


def _ticks(timeout: float) -> Iterator[None]:
    deadline_s = time.monotonic() + timeout
    while time.monotonic() < deadline_s:
        yield
        time.sleep(0.01)
