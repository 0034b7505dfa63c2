"""Every environment variable the library reads: one row a variable, with its type, its default and its meaning.

A row is read where it is used, with ``config.TIMEOUT_S.read()``; nothing else in the package touches ``os.environ`` for
a ``COLLECTIVES_*`` name. ``python -m collectives.config`` prints ``docs/configuration.md``. Imports nothing of the
package; everything may import it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable.

    Attributes
    ----------
    name : str
        The variable, ``COLLECTIVES_*``.
    parse : callable
        Text to value; raises ValueError with what was expected.
    default : T
        The value where the variable is unset or empty.
    type_name : str
        The type as the documentation names it.
    doc : str
        What it does, in one or two sentences.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    type_name: str
    doc: str

    def read(self, environ: Mapping[str, str] | None = None) -> T:
        """Return the value from the environment, or the default where it is unset or empty.

        Parameters
        ----------
        environ : mapping, optional
            Read from here; by default from ``os.environ``.

        Raises
        ------
        ValueError
            If the text does not parse; the message names the variable, the text, and what is accepted.
        """
        text = (os.environ if environ is None else environ).get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise ValueError(f"{self.name}={text!r}: {error}") from None


def parse_text(text: str) -> str:
    """Return the text itself."""
    return text


def parse_seconds(text: str) -> float:
    """Parse a positive number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError("expected a positive number of seconds, such as 1800 or 0.5")
    return seconds


def parse_microseconds(text: str) -> int:
    """Parse a whole number of microseconds, zero or more."""
    if not re.fullmatch(r"[0-9]+", text):
        raise ValueError("expected a whole number of microseconds, such as 50")
    return int(text)


def parse_count(minimum: int, maximum: int) -> Callable[[str], int]:
    """Make a parser of whole numbers between two bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text) or not minimum <= int(text) <= maximum:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return int(text)

    return parse


def parse_bytes(minimum: int, maximum: int) -> Callable[[str], int]:
    """Make a parser of sizes between two bounds: a number with an optional KiB, MiB or GiB (``4194304``, ``4MiB``)."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"([0-9]+)\s*(?:([kmg])(?:i?b)?|b)?", text.lower())
        if match is None:
            raise ValueError("expected a size in bytes, such as 4194304 or 4MiB")
        size = int(match.group(1)) * _UNITS[match.group(2) or ""]
        if not minimum <= size <= maximum:
            raise ValueError(f"expected a size between {format_bytes(minimum)} and {format_bytes(maximum)}")
        return size

    return parse


def parse_choice(*choices: str) -> Callable[[str], str]:
    """Make a parser that accepts these words, in any case."""

    def parse(text: str) -> str:
        word = text.lower()
        if word not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return word

    return parse


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``host:port``; a host that is an IPv6 address stands in brackets."""
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]+)", text)
    if match is None or not 0 < int(match.group(3)) < 65536:
        raise ValueError("expected host:port, such as 10.0.0.1:29500 or [fe80::1]:29500")
    return match.group(1) or match.group(2), int(match.group(3))


def format_bytes(size_bytes: int) -> str:
    """Write a size with the largest unit that divides it: ``4 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


TIMEOUT_S = Variable(
    "COLLECTIVES_TIMEOUT_S",
    parse_seconds,
    1800.0,
    "seconds",
    "How long an operation may wait for its peers, where neither the call nor the group says otherwise.",
)
STORE = Variable[tuple[str, int] | None](
    "COLLECTIVES_STORE",
    parse_address,
    None,
    "host:port",
    "Where the ranks of a job meet in `Communicator.from_env` under mpirun or srun; rank 0 listens there. By default "
    "MASTER_ADDR and MASTER_PORT, else mpi4py, else a file on the one host.",
)
SECRET = Variable[str | None](
    "COLLECTIVES_SECRET",
    parse_text,
    None,
    "text",
    "The job's secret, the same on all ranks. A connection must prove that it holds it, and the random key that the "
    "process it connects to put into the job's store, before anything else is read. By default the key alone.",
)
SWITCH_SECRET = Variable[str | None](
    "COLLECTIVES_SWITCH_SECRET",
    parse_text,
    None,
    "text",
    "The secret of the switch that aggregates: the same where `collectives switch` runs and on every rank that uses "
    "it, 16 characters or more. Jobs prove with it that they may join, and their packets are tagged with keys made of "
    "it.",
)
INTERFACE = Variable[str | None](
    "COLLECTIVES_INTERFACE",
    parse_text,
    None,
    "name or address",
    "The network interface by which ranks on other hosts reach this process, such as `eth0` or `10.0.0.1`; the "
    "listener binds to it alone. By default the one on the route to where the job meets.",
)
STREAMS = Variable(
    "COLLECTIVES_STREAMS",
    parse_count(1, 16),
    1,
    "number (1 to 16)",
    "Connections that carry the data of collectives to each process on another host, the same on all ranks. More than "
    "one helps where one TCP stream does not fill the link.",
)
LINKS = Variable(
    "COLLECTIVES_LINKS",
    parse_choice("measure", "assume"),
    "measure",
    "measure or assume",
    "What the choice between algorithms between hosts rests on. `measure`: what `collectives tune` kept for ranks that "
    "lie so, else what the first group measures when it forms, in some tens of milliseconds. `assume`: the figures of "
    "an idle 10 Gbit/s network. Rank 0's counts.",
)
CACHE = Variable[str | None](
    "COLLECTIVES_CACHE",
    parse_text,
    None,
    "folder",
    "Where `collectives tune` keeps what it measured, and where rank 0 looks for it. By default `collectives` in "
    "`$XDG_CACHE_HOME`, else in `~/.cache`.",
)
LOG = Variable[str | None](
    "COLLECTIVES_LOG",
    parse_choice("error", "warning", "info", "debug"),
    None,
    "error, warning, info or debug",
    "Print the log to stderr from this level on. `info` says once what a group runs on and why (transport, staging, "
    "what was measured), `debug` for every group. By default warnings and errors, or what the program's own "
    "configuration of Python's logger `collectives` says.",
)
SPIN_US = Variable[int | None](
    "COLLECTIVES_SPIN_US",
    parse_microseconds,
    None,
    "microseconds",
    "How long a wait spins before it sleeps. By default briefly where every rank has a core of its own, and not at all "
    "(a few yields, then sleep) where ranks outnumber cores.",
)
STREAMING_STORES = Variable(
    "COLLECTIVES_STREAMING_STORES",
    parse_choice("auto", "on", "off"),
    "auto",
    "auto, on or off",
    "Whether copies into staging memory bypass the cache. `auto` takes what is faster on this machine.",
)
STAGING_BYTES = Variable(
    "COLLECTIVES_STAGING_BYTES",
    parse_bytes(64 << 10, 4 << 20),
    4 << 20,
    "size (64 KiB to 4 MiB)",
    "Shared staging memory of a process, for all its groups together, whatever the size of its messages.",
)
HEAP_BYTES = Variable(
    "COLLECTIVES_HEAP_BYTES",
    parse_bytes(1 << 20, 1 << 40),
    64 << 30,
    "size",
    "Address space set aside for `collectives.empty` and for allocateTensor; memory is only taken as tensors are made.",
)

VARIABLES: tuple[Variable, ...] = (
    TIMEOUT_S,
    STORE,
    SECRET,
    SWITCH_SECRET,
    INTERFACE,
    STREAMS,
    LINKS,
    CACHE,
    LOG,
    SPIN_US,
    STREAMING_STORES,
    STAGING_BYTES,
    HEAP_BYTES,
)
"""Every row, in the order of the documentation. A new variable is a constant above and a row here."""


def check_names(environ: Mapping[str, str]) -> list[str]:
    """Return the ``COLLECTIVES_*`` names in an environment that no row knows, sorted: misspelt, most likely."""
    known = {variable.name for variable in VARIABLES}
    return sorted(name for name in environ if name.startswith("COLLECTIVES_") and name not in known)


def _default_text(variable: Variable) -> str:
    if variable.default is None:
        return "unset"
    if "size" in variable.type_name:
        return format_bytes(variable.default)
    return f"{variable.default:g}" if isinstance(variable.default, float) else str(variable.default)


def to_markdown(variables: Iterable[Variable] = VARIABLES) -> str:
    """Write ``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        "<!-- Written by `make docs` from collectives/config.py; a test compares the two. -->",
        "",
        "Every environment variable the library reads. An option given in the program (`collectives.Options`, an",
        "argument of a call) comes before the variable, the variable before the default. A value that does not parse",
        "is an error that names the variable.",
        "",
        "| variable | value | default | meaning |",
        "|---|---|---|---|",
    ]
    for variable in variables:
        lines.append(f"| `{variable.name}` | {variable.type_name} | {_default_text(variable)} | {variable.doc} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(to_markdown(), end="")
