"""The environment variables: defaults, parsing, and errors that name the variable."""

from __future__ import annotations

import pytest

from collectives import config


def test_unset_and_empty_give_the_default() -> None:
    assert config.TIMEOUT_S.read({}) == 1800.0
    assert config.TIMEOUT_S.read({"COLLECTIVES_TIMEOUT_S": "  "}) == 1800.0
    assert config.STORE.read({}) is None
    assert config.STAGING_BYTES.read({}) == 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        (config.TIMEOUT_S, "0.5", 0.5),
        (config.STORE, "10.0.0.1:29500", ("10.0.0.1", 29500)),
        (config.STORE, "[fe80::1]:80", ("fe80::1", 80)),
        (config.SPIN_US, "0", 0),
        (config.STREAMING_STORES, "ON", "on"),
        (config.STREAMS, "4", 4),
        (config.INTERFACE, "eth0", "eth0"),
        (config.STAGING_BYTES, "65536", 65536),
        (config.STAGING_BYTES, "512 KiB", 512 * 1024),
        (config.STAGING_BYTES, "2M", 2 * 1024 * 1024),
        (config.LOG, "debug", "debug"),
        (config.SECRET, " once upon a time ", "once upon a time"),
    ],
)
def test_text_is_parsed(variable: config.Variable, text: str, value: object) -> None:
    assert variable.read({variable.name: text}) == value


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        (config.TIMEOUT_S, "soon", "positive number of seconds"),
        (config.TIMEOUT_S, "0", "positive number of seconds"),
        (config.TIMEOUT_S, "inf", "positive number of seconds"),
        (config.STORE, "host", "host:port"),
        (config.STORE, "host:70000", "host:port"),
        (config.STORE, "fe80::1:80", "host:port"),
        (config.SPIN_US, "-1", "whole number of microseconds"),
        (config.STREAMING_STORES, "maybe", "auto, on, off"),
        (config.STREAMS, "0", "from 1 to 16"),
        (config.STREAMS, "two", "from 1 to 16"),
        (config.LOG, "loud", "error, warning, info, debug"),
        (config.STAGING_BYTES, "5MiB", "between 64 KiB and 4 MiB"),
        (config.STAGING_BYTES, "4 megs", "size in bytes"),
    ],
)
def test_bad_text_is_an_error_that_names_the_variable(variable: config.Variable, text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        variable.read({variable.name: text})
    assert str(caught.value).startswith(f"{variable.name}={text!r}: ")
    assert expected in str(caught.value)


def test_misspelt_names_are_found() -> None:
    environ = {"COLLECTIVES_TIMEOUT": "3", "COLLECTIVES_LOG": "info", "PATH": "/bin"}
    assert config.check_names(environ) == ["COLLECTIVES_TIMEOUT"]


def test_every_default_is_shown_and_reads_back() -> None:
    page = config.to_markdown()
    for variable in config.VARIABLES:
        assert f"| `{variable.name}` |" in page
        if variable.default is not None:
            assert variable.read({variable.name: str(variable.default)}) == variable.default
