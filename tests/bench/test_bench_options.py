"""Command line of bench/run.py."""

from __future__ import annotations

import argparse

import pytest

from bench import cases, options, peers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("32K", 32768), ("32KiB", 32768), ("64m", 64 << 20), ("1G", 1 << 30), ("64 MB", 64 << 20), ("5B", 5)],
)
def test_sizes_are_read(text: str, expected: int) -> None:
    assert options.parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-8", "8X", "K", "1.5M", "8 8"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        options.parse_size(text)


def test_series_goes_by_the_factor_and_includes_the_last() -> None:
    assert options.size_series(8, 1000, 8) == (8, 64, 512, 1000)
    assert options.size_series(8, 512, 8) == (8, 64, 512)
    assert options.size_series(8, 8, 2) == (8,)


def test_defaults_are_powers_of_8_to_64_mib() -> None:
    made = options.parse([])
    assert made.sizes == (8, 64, 512, 4096, 32768, 262144, 2097152, 16777216, 67108864)
    assert made.ops == tuple(row.name for row in cases.OPERATIONS)
    assert (made.rounds, made.warmup, made.iterations, made.dtype) == (5, 16, None, "float32")


def test_quick_is_smaller_and_gives_way_to_what_is_asked() -> None:
    assert options.parse(["--quick"]).sizes == (8, 512, 32768, 262144)
    assert options.parse(["--quick"]).rounds == 2
    asked = options.parse(["--quick", "-e", "1M", "-f", "8", "--rounds", "3", "-n", "7", "-w", "2"])
    assert asked.sizes[-1] == 1 << 20
    assert (asked.rounds, asked.iterations, asked.warmup) == (3, 7, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-b", "1M", "-e", "1K"], "below the first"),
        (["-f", "1"], "must be 2 or more"),
        (["--ops", "all_reduce,allreduce"], "unknown operation 'allreduce'"),
        (["--ops", ","], "empty list"),
        (["-n", "0"], "not a positive whole number"),
        (["--seconds", "0"], "above 0"),
        (["--dtype", "float8"], "invalid choice"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options.parse(arguments)
    assert message in capsys.readouterr().err


def test_peers_come_by_name_each_once() -> None:
    assert [peer.name for peer in peers.chosen(["all"])] == [row.name for row in peers.PEERS]
    assert [peer.name for peer in peers.chosen(["gloo", "core", "gloo"])] == ["gloo", "core"]
    assert [peer.name for peer in peers.chosen(["bench_fakes:Local"])] == ["local"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("glue", "unknown peer 'glue'"), ("bench_fakes:None", "bench_fakes:None"), ("json:JSONDecoder", "no bench.peers")],
)
def test_unknown_peers_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        peers.chosen([name])
