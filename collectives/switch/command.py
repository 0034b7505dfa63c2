"""``collectives switch``: run a switch, or ask one for its status. ``docs/switch.md`` describes every option.

Called by the command line and by ``python -m collectives.switch``, which ``child`` starts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import os
import re
import resource
import signal
import socket
import stat
import sys
from collections.abc import Sequence

from collectives import config, log
from collectives.errors import CollectivesError
from collectives.switch import engines, lines, metrics
from collectives.switch.admission import Limits
from collectives.switch.control import Control
from collectives.switch.engines import MOST_WORKERS, Address, Engine, EngineOptions
from collectives.switch.join import ask_status

DEFAULT_PORT = 5190
READY = "collectives switch ready at "
_TRIES = 10  # to find a port that is free for TCP and for UDP


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the arguments are those behind ``collectives switch``.

    Returns
    -------
    int
        The exit status: 0, 1 where something went wrong, 2 where the arguments are wrong.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        log.configure()
        if words[:1] == ["status"]:
            return show_status(_status_parser().parse_args(words[1:]))
        parser = _parser()
        return run(parser.parse_args(words), parser)
    except (CollectivesError, ValueError, OSError) as error:
        # `child` reads the reason where it would have read that the switch is ready.
        print(f"collectives switch: {error}", file=sys.stdout if "--parent" in words else sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="collectives switch",
        description="The switch that adds up the ranks' vectors in the network, in software. `collectives switch "
        "status ADDRESS:PORT` asks one for its status. docs/switch.md says more.",
    )
    add = parser.add_argument
    add(
        "--listen",
        action="append",
        required=True,
        metavar="ADDRESS:PORT",
        help="where workers reach it, over TCP and UDP; may be given several times; port 0 takes any, none "
        f"{DEFAULT_PORT}",
    )
    add(
        "--engine",
        nargs="+",
        default=["native"],
        metavar=("native|p4", "PROGRAM"),
        help="what runs the packets: native (C++; the default), or p4 and a P4 program (default p4/aggregate.p4)",
    )
    add("--lanes", type=int, default=None, metavar="N", help="p4: lanes of a packet that it is built for (default 64)")
    add("--lane-bits", type=int, default=None, metavar="B", help="p4: their width, 8, 16 or 32 (default 32)")
    add("--slots", type=int, default=None, metavar="N", help="p4: slots of all jobs together (default 256)")
    add("--pool", default=None, metavar="SIZE", help="native: memory for the slots of all jobs (default 64MiB)")
    add("--most-slots", type=_at_least_1, default=None, metavar="N", help="quota: slots of a job (default: the pool's)")
    add("--most-jobs", type=_at_least_1, default=Limits.jobs, metavar="N", help="quota: jobs (default %(default)s)")
    add(
        "--most-workers",
        type=_at_least_1,
        default=Limits.workers,
        metavar="N",
        help="quota: workers of a job (default %(default)s, which is the most)",
    )
    add("--pcap", default=None, metavar="FILE", help="p4: record every packet, for tcpdump and Wireshark")
    add("--metrics", default=None, metavar="ADDRESS:PORT", help="serve Prometheus metrics over HTTP there, at /metrics")
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--secret-file", default=None, metavar="FILE", help="holds the switch's secret")
    secret.add_argument("--open", action="store_true", help="no secret: whoever reaches it may use it, and spoil sums")
    add("--parent", type=int, default=None, help=argparse.SUPPRESS)  # ends with this process; `child` gives it
    return parser


def _status_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="collectives switch status", description="What a switch tells of itself.")
    parser.add_argument("address", metavar="ADDRESS:PORT", help=f"the switch's (port {DEFAULT_PORT} if none is given)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--secret-file", default=None, metavar="FILE", help="holds the switch's secret")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="(default %(default)g)")
    return parser


def _at_least_1(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def show_status(options: argparse.Namespace) -> int:
    """Ask a switch, and print what it tells."""
    secret = lines.read_secret(options.secret_file)
    status = ask_status(parse_place(options.address), secret, options.timeout)
    print(json.dumps(status, indent=2) if options.json else metrics.format_status(status))
    return 0


def run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run a switch until SIGTERM, SIGINT, or the end of the parent that is watched."""
    engine_options = read_engine(options, parser)
    if options.most_workers > MOST_WORKERS:
        parser.error(f"--most-workers: a job has at most {MOST_WORKERS} workers")
    secret = choose_secret(options.open, options.secret_file)
    limits = Limits(workers=options.most_workers, jobs=options.most_jobs, slots=options.most_slots)
    places = [_resolve(parse_place(text)) for text in options.listen]
    metrics_place = None if options.metrics is None else _resolve(parse_place(options.metrics, needs_port=True))
    allow_descriptors()
    with contextlib.ExitStack() as stack:
        metrics_socket = None if metrics_place is None else stack.enter_context(bind_tcp(metrics_place))
        sockets, engine = bind_pairs(places, engine_options)
        stack.callback(engine.close)
        control = Control(engine, secret, limits)
        asyncio.run(serve(control, sockets, metrics_socket, options.parent))
    return 0


def read_engine(options: argparse.Namespace, parser: argparse.ArgumentParser) -> EngineOptions:
    """Take the engine from the options; one that belongs to the other engine is refused."""
    name, *program = options.engine
    if name not in ("native", "p4") or len(program) > (1 if name == "p4" else 0):
        parser.error(f"--engine {' '.join(options.engine)}: give native, or p4 and perhaps a program")
    given = {key: getattr(options, key) for key in ("lanes", "lane_bits", "slots", "pool")}
    for key in ("pool",) if name == "p4" else ("lanes", "lane_bits", "slots"):
        if given[key] is not None:
            parser.error(f"--{key.replace('_', '-')} is not an option of the engine {name}")
    chosen = {key: value for key, value in given.items() if value is not None and key != "pool"}
    if options.pool is not None:
        try:
            chosen["pool_bytes"] = config.parse_bytes(1 << 16, 1 << 40)(options.pool)
        except ValueError as error:
            parser.error(f"--pool {options.pool}: {error}")
    return EngineOptions(name, program[0] if program else None, pcap=options.pcap, **chosen)


def choose_secret(is_open: bool, file: str | None) -> bytes | None:
    """Return the switch's secret; None for one that was told to be open.

    Raises
    ------
    ValueError
        If there is neither a secret nor ``--open``, or the secret is too short.
    """
    if is_open:
        return None
    secret = lines.read_secret(file)
    if secret is None:
        raise ValueError(
            "a switch needs a secret, or whoever reaches it could spoil the sums of others: set "
            "COLLECTIVES_SWITCH_SECRET or give --secret-file (`openssl rand -hex 32` makes one); or say --open"
        )
    if len(secret) < lines.LEAST_SECRET_BYTES:
        raise ValueError(
            f"the secret has {len(secret)} characters; take at least {lines.LEAST_SECRET_BYTES}, such as "
            "`openssl rand -hex 32` prints: a short one can be guessed from a recorded proof"
        )
    if file is not None and stat.S_IMODE(os.stat(file).st_mode) & 0o077:
        log.logger.warning("%s can be read by others: chmod 600 %s", file, file)
    return secret


# ---- addresses


def parse_place(text: str, needs_port: bool = False) -> Address:
    """Parse ``host:port``, ``host`` or ``[IPv6]:port``; port 0 is allowed.

    Raises
    ------
    ValueError
        If it is none of them. No host at all is not taken for all interfaces.
    """
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::([0-9]+))?", text)
    port = DEFAULT_PORT if match is None or match.group(3) is None else int(match.group(3))
    if match is None or port > 65535 or (needs_port and match.group(3) is None):
        raise ValueError(
            f"{text!r} is no ADDRESS:PORT, such as 10.0.0.254:5190, [fd00::1]:5190 or, for all, 0.0.0.0:5190"
        )
    return match.group(1) or match.group(2), port


def _resolve(place: Address) -> Address:
    """Return an address by its numbers."""
    try:
        found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"{place[0]}: {error.strerror or error}; give an address of this machine") from None
    address = found[0][4]
    return str(address[0]), int(address[1])


def bind_tcp(place: Address) -> socket.socket:
    """Return a TCP socket bound to an address.

    Raises
    ------
    OSError
        If it cannot be bound; the text says where.
    """
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(place)
    except OSError as error:
        one.close()
        raise OSError(error.errno, f"cannot listen at {metrics.format_address(*place)}: {error.strerror}") from None
    return one


def bind_pairs(places: Sequence[Address], options: EngineOptions) -> tuple[list[socket.socket], Engine]:
    """Bind TCP sockets, and make an engine at the same ports of UDP; where a port is 0, one is found that both have.

    Raises
    ------
    OSError
        If an address cannot be bound.
    """
    for left in reversed(range(_TRIES)):
        sockets: list[socket.socket] = []
        try:
            for place in places:
                sockets.append(bind_tcp(place))
            bound = [one.getsockname()[:2] for one in sockets]
            return sockets, engines.make(options, bound)
        except BaseException as error:
            for one in sockets:
                one.close()
            busy = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not busy or not left or all(port for _, port in places):
                raise
    raise AssertionError("the last try returns or raises")


def allow_descriptors() -> None:
    """Raise the limit of open files to what this process may have: each worker holds a connection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# ---- running


async def serve(
    control: Control, sockets: Sequence[socket.socket], metrics_socket: socket.socket | None, parent: int | None
) -> None:
    """Serve until told to end; prints one line when ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with watch_parent(loop, parent, stop):
        await control.start(sockets)
        http = None if metrics_socket is None else await metrics.serve_http(metrics_socket, control.status)
        try:
            print(ready_line(control, metrics_socket), flush=True)
            await stop.wait()
        finally:
            if http is not None:
                http.close()
            await control.close()


def ready_line(control: Control, metrics_socket: socket.socket | None) -> str:
    """Return what is printed when the switch is ready; ``child`` reads the addresses out of it."""
    engine = control.engine
    places = " ".join(metrics.format_address(*place[:2]) for place in engine.addresses)
    widths = "/".join(map(str, engine.lane_bits))
    text = f"{READY}{places}, engine {engine.name}, {engine.lanes} lanes of {widths} bits, "
    text += "tags on" if control.admissions.tags else "tags off"
    if metrics_socket is not None:
        text += f", metrics at http://{metrics.format_address(*metrics_socket.getsockname()[:2])}/metrics"
    return text


@contextlib.contextmanager
def watch_parent(loop: asyncio.AbstractEventLoop, parent: int | None, stop: asyncio.Event):  # type: ignore[no-untyped-def]
    """End with a process, however it ends.

    A descriptor of the process, not a pipe: a fork of the parent would hold a pipe open. Not the signal at a parent's
    death: it comes when the thread ends that started this process.
    """
    if parent is None:
        yield
        return
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        stop.set()
        yield
        return
    loop.add_reader(watched, stop.set)
    if os.getppid() != parent:  # it was gone, and its number may be another's
        stop.set()
    try:
        yield
    finally:
        loop.remove_reader(watched)
        os.close(watched)


__all__ = ["main", "run", "show_status"]
