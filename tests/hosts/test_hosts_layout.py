"""The shape of a rig: addresses, files, rates, and the batches that make it. No root is needed."""

from __future__ import annotations

import pytest

from tests.hosts.layout import Layout, Shaping, parse_rate


def layout(count: int = 2, **options) -> Layout:
    return Layout("clh-1-0", count, options.pop("rates", (None,) * count), **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1gbit", 1e9),
        ("100mbit", 1e8),
        ("2500Mbps", 2.5e9),
        ("2.5g", 2.5e9),
        ("1000kbit", 1e6),
        (1e9, 1e9),
        (10**7, 1e7),
    ],
)
def test_rates_are_read(text, expected: float) -> None:
    assert parse_rate(text) == expected


@pytest.mark.parametrize("text", ["fast", "", "1.2.3gbit", "gbit", "10kbit", 0, -1e9, "1gbyte"])
def test_other_rates_are_refused(text) -> None:
    with pytest.raises(ValueError, match="at least 1mbit, as in 1gbit"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "hosts: 0 is not between 1 and 200"),
        ({"count": 201}, "hosts: 201 is not between"),
        ({"rates": (1e9,)}, "1 rates for 2 hosts"),
        ({"loss": 1.0}, "loss: 1.0 is not a probability"),
        ({"mtu": 576}, "mtu: 576 is not between 1280"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layout(**options)


def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="host 2: there are hosts 0 to 1"):
        layout().address(2)
    with pytest.raises(ValueError, match="host -1"):
        layout().namespace(-1)


def test_addresses_and_names() -> None:
    both, only6 = layout(), layout(ipv6=True)
    assert (both.address(1), both.address(1, 6)) == ("10.77.0.2", "fd77::2")
    assert only6.address(1) == "fd77::2"
    assert "10.77.0.2 host1\n" in both.hosts_file()
    assert "fd77::2 host1\n" in only6.hosts_file()
    assert "fd77::2 host1-v6\n" in both.hosts_file()
    assert "10.77" not in only6.hosts_file() + only6.host_links(0)
    with pytest.raises(ValueError, match="no IPv4"):
        only6.address(0, 4)
    assert layout(200).address(199) == "10.77.0.200"


def test_a_link_is_shaped_at_both_ends_and_only_where_asked() -> None:
    shaped = layout(rates=(1e9, None))
    assert shaped.host_shape(0).startswith("qdisc add dev eth0 root tbf rate 1000000000bit")
    assert shaped.host_shape(1) == ""
    assert shaped.switch_shape().count("\n") == 1
    assert "dev port0" in shaped.switch_shape()


@pytest.mark.parametrize("rate", [1e6, 1e8, 1e9, 1e10, 1e11])
@pytest.mark.parametrize("mtu", [1280, 1500, 9000])
def test_a_bucket_holds_three_pieces_and_a_queue_many_bursts(rate: float, mtu: int) -> None:
    shaping = Shaping.of(rate, mtu)
    assert shaping.segment_bytes >= mtu + 14
    assert shaping.burst_bytes >= 3 * shaping.segment_bytes
    assert shaping.limit_bytes >= 8 * shaping.burst_bytes


def test_with_loss_every_packet_goes_alone() -> None:
    lossy = layout(loss=0.25, rates=(1e9, 1e9))
    assert "gso_max_segs 1" in lossy.host_links(0)
    assert "gso_max_segs" not in layout(rates=(1e9, 1e9)).host_links(0)
    assert "--probability 0.250000000 -j DROP" in lossy.loss_rules()
    assert layout().loss_rules() == ""
