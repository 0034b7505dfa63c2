"""``collectives.Switch``: a switch as a child process, for scripts and tests. Public name of the package."""

from __future__ import annotations

import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from typing import Any

from collectives import config
from collectives.errors import CollectivesError, CollectiveTimeoutError
from collectives.switch import lines
from collectives.switch.command import READY, parse_place
from collectives.switch.join import ask_status


class Switch:
    """A switch in a child process, which ends with this object's block, with ``close``, or with this process.

    ::

        with collectives.Switch(workers=4) as switch:
            print(switch.address, switch.status()["packets"])  # workers join with switch.secret

    Parameters
    ----------
    workers : int
        The most workers of a job, 1 to 64.
    engine : str
        ``native`` or ``p4``.
    program : path, optional
        With ``p4``: the program; by default p4/aggregate.p4 of the checkout.
    lanes, lane_bits, slots : int, optional
        With ``p4``: what the program is built for.
    pool : str, optional
        With ``native``: memory for slots, such as ``64MiB``.
    listen : str
        ``ADDRESS:PORT``; by default a free port of this machine alone.
    secret : str, optional
        By default that of ``COLLECTIVES_SWITCH_SECRET``, else a random one.
    open : bool
        No secret: whoever reaches the switch may use it.
    metrics : str, optional
        ``ADDRESS:PORT`` to serve Prometheus metrics at.
    pcap : path, optional
        Where every packet is recorded.
    timeout : float
        Seconds that the switch may take to be ready.

    Attributes
    ----------
    address : str
        ``ADDRESS:PORT``, as it got it.
    secret : str or None
        What its workers must hold.
    metrics : str or None
        Where it serves metrics, as a URL.
    pid : int
        Of the child process.

    Raises
    ------
    CollectivesError
        If it does not start; the text has what it said.
    CollectiveTimeoutError
        If it is not ready in time.
    """

    def __init__(
        self,
        workers: int = 64,
        engine: str = "native",
        *,
        program: str | os.PathLike[str] | None = None,
        lanes: int | None = None,
        lane_bits: int | None = None,
        slots: int | None = None,
        pool: str | None = None,
        listen: str = "127.0.0.1:0",
        secret: str | None = None,
        open: bool = False,
        metrics: str | None = None,
        pcap: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        command = [sys.executable, "-m", "collectives.switch", "--listen", listen, "--parent", str(os.getpid())]
        command += ["--most-workers", str(workers), "--engine", engine]
        command += [os.fspath(program)] if program is not None else []
        options = {
            "lanes": lanes,
            "lane-bits": lane_bits,
            "slots": slots,
            "pool": pool,
            "metrics": metrics,
            "pcap": pcap,
        }
        for name, value in options.items():
            if value is not None:
                command += [f"--{name}", os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        self.secret: str | None = None
        if open:
            if secret is not None:
                raise ValueError("an open switch has no secret; give one or the other")
            command.append("--open")
        else:
            known = lines.read_secret()
            self.secret = secret or (known.decode() if known is not None else secrets.token_hex(32))
        self._process = _start(command, self.secret)
        self.pid = self._process.pid
        try:
            said = self._wait_until_ready(time.monotonic() + timeout, timeout)
        except BaseException:
            self.kill()
            raise
        found = re.match(re.escape(READY) + r"(\S+?)[, ]", said)
        assert found is not None
        self.address = found.group(1)
        url = re.search(r"metrics at (\S+)", said)
        self.metrics = url.group(1) if url is not None else None

    def status(self, timeout: float = 10.0) -> dict[str, Any]:
        """Return what the switch tells of itself: the plain values of docs/switch.md."""
        return ask_status(parse_place(self.address), self.secret, timeout)

    def kill(self) -> None:
        """End it at once, as a power cut would: nothing is said to anybody. May be called twice."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End it in an orderly way. May be called twice."""
        self._end(signal.SIGTERM)

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait_until_ready(self, until_s: float, timeout: float) -> str:
        """Return the line that the switch prints when it is ready."""
        out = self._process.stdout
        assert out is not None
        said = b""
        while b"\n" not in said:
            ready, _, _ = select.select([out], [], [], max(0.0, until_s - time.monotonic()))
            if not ready:
                raise CollectiveTimeoutError(f"the switch was not ready within {timeout:.3g} s")
            data = os.read(out.fileno(), 4096)
            if not data:
                break
            said += data
        line = said.decode(errors="replace").strip()
        if not line.startswith(READY):
            status = self._process.wait(timeout=5)
            raise CollectivesError(f"the switch did not start (exit status {status}): {line or 'it said nothing'}")
        return line


def _start(command: list[str], secret: str | None) -> subprocess.Popen[bytes]:
    """Start the child; the secret goes by its environment, which others cannot read as they can its arguments."""
    environment = dict(os.environ)
    environment.pop(config.SWITCH_SECRET.name, None)
    if secret is not None:
        environment[config.SWITCH_SECRET.name] = secret
    # A Ctrl-C at the terminal is for this process, which then ends the switch in its own time.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, start_new_session=True
    )
