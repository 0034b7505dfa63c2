"""Command line of run.py, in the manner of nccl-tests and the OSU benchmarks. Pure parsing.

Used by run.py and, for sizes, by compare.py; includes cases.py for the operations' names.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import cases

DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Up to here an operation is also timed in loops without a barrier.
SMALL_MESSAGE_BYTES = 4096


@dataclass(frozen=True)
class Options:
    """What one run measures. Sizes in bytes, `seconds` a block of (operation, size, peer, round)."""

    sizes: tuple[int, ...]
    ops: tuple[str, ...]
    peers: tuple[str, ...]
    dtype: str = "float32"
    iterations: int | None = None
    warmup: int = 16
    rounds: int = 5
    seconds: float = 0.1
    pin: str = "auto"
    json_path: str | None = None
    quick: bool = False
    probe: bool = True


def parse_size(text: str) -> int:
    """`64`, `64K`, `64KiB`, `64M`, `1G` (powers of 1024) as bytes.

    Raises
    ------
    argparse.ArgumentTypeError
        When the text is no size, or is not positive.
    """
    match = re.fullmatch(r"\s*(\d+)\s*([KMG]?)(?:I?B)?\s*", text, re.IGNORECASE)
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 8, 32K, 4MiB or 1G")
    return int(match[1]) * _UNITS[match[2].upper()]


def size_series(first: int, last: int, factor: int) -> tuple[int, ...]:
    """Sizes from first, times factor, up to last, and last itself.

    Raises
    ------
    ValueError
        When last is below first, or the factor is below 2.
    """
    if last < first:
        raise ValueError(f"the last size (-e {last}) is below the first (-b {first})")
    if factor < 2:
        raise ValueError(f"the factor (-f {factor}) must be 2 or more")
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    if sizes[-1] != last:
        sizes.append(last)
    return tuple(sizes)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise argparse.ArgumentTypeError("an empty list of names")
    return names


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    """The parser of run.py."""
    every_op = tuple(row.name for row in cases.OPERATIONS)
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Collectives of several libraries in one interleaved run. Launch it with "
        "'mpirun -n N python bench/run.py' or 'torchrun --nproc-per-node N bench/run.py'.",
    )
    parser.add_argument("-b", "--min-bytes", type=parse_size, default=8, help="first size (default 8)")
    parser.add_argument("-e", "--max-bytes", type=parse_size, default=None, help="last (default 64M; --quick 256K)")
    parser.add_argument("-f", "--factor", type=int, default=None, help="step between sizes (default 8; --quick 64)")
    parser.add_argument("-n", "--iterations", type=_positive, default=None, help="timed iterations (default: by time)")
    parser.add_argument("-w", "--warmup", type=_positive, default=16, help="untimed ones before them (default 16)")
    parser.add_argument("--rounds", type=_positive, default=None, help="interleaved rounds (default 5; --quick 2)")
    parser.add_argument("--seconds", type=float, default=None, help="time for a block (default 0.1; --quick 0.02)")
    parser.add_argument("--ops", type=_names, default=every_op, help=f"of {','.join(every_op)}")
    parser.add_argument(
        "--peers", type=_names, default=("all",), help="names in bench/peers, or module:Class (default all)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument(
        "--pin",
        choices=("auto", "cores", "none"),
        default="auto",
        help="cores: rank i on core i when they fit; auto: so under mpirun, not under torchrun",
    )
    parser.add_argument("--json", dest="json_path", default=None, metavar="FILE", help="write everything there")
    parser.add_argument("--quick", action="store_true", help="a look in seconds: few sizes, two short rounds")
    parser.add_argument("--no-probe", action="store_true", help="leave out the flag round trip and the bandwidth")
    return parser


def parse(arguments: Sequence[str]) -> Options:
    """Options from a command line; exits with argparse's message when it is wrong."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    quick = given.quick
    try:
        for name in given.ops:
            cases.operation(name)
        sizes = size_series(
            given.min_bytes,
            given.max_bytes or (256 << 10 if quick else 64 << 20),
            given.factor if given.factor is not None else (64 if quick else 8),
        )
    except ValueError as error:
        parser.error(str(error))
    options = Options(
        sizes=sizes,
        ops=given.ops,
        peers=given.peers,
        dtype=given.dtype,
        iterations=given.iterations,
        warmup=given.warmup,
        pin=given.pin,
        json_path=given.json_path,
        quick=quick,
        probe=not given.no_probe,
    )
    rounds = given.rounds or (2 if quick else 5)
    seconds = given.seconds if given.seconds is not None else (0.02 if quick else 0.1)
    if seconds <= 0:
        parser.error(f"--seconds {seconds} must be above 0")
    return replace(options, rounds=rounds, seconds=seconds)
