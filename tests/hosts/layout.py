"""What a rig consists of: names, addresses, and the batch files that make it. Pure functions, without I/O.

Every host is a network namespace with one interface, `eth0`, whose other end is a port of a bridge in a namespace of
its own (the "switch"), so that nothing of the machine's own network takes part: not its firewall (which may filter
bridges), not its addresses, not its routes.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

MAX_HOSTS = 200
NETWORK = ipaddress.ip_network("10.77.0.0/24")
NETWORK6 = ipaddress.ip_network("fd77::/64")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

# The kernel's own defaults, so that figures do not depend on how a machine was tuned; new namespaces take most of these
# from the machine. Duplicate address detection would keep the IPv6 addresses from being used for a second or two.
HOST_SYSCTLS = {
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/ipv4/tcp_no_metrics_save": "1",  # what one connection learnt must not slow down the next test
    "net/ipv4/ip_forward": "0",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/ping_group_range": "0 2147483647",
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/all/forwarding": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/dad_transmits": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/default/router_solicitations": "0",
}
# The switch only bridges: no address of its own, no packet filter on what it passes on. The bridge-nf settings exist
# where br_netfilter is loaded.
SWITCH_SYSCTLS = {
    "net/ipv4/ip_forward": "0",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-arptables": "0",
}


def parse_rate(rate: str | float) -> float:
    """Return bits per second of "1gbit", "100mbit" or a number.

    Raises
    ------
    ValueError
        If it is neither, or below 1 Mbit/s: then a packet takes longer than tests wait.
    """
    match = re.fullmatch(r"([0-9.]+)(?:([kmgt]?)(?:bit|bps)?)?", str(rate).strip().lower())
    try:
        value = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    except ValueError:
        value = 0.0
    if value < 1e6:
        raise ValueError(f"rate {rate!r}: give bits per second, at least 1mbit, as in 1gbit, 100mbit or 1e9")
    return value


@dataclass(frozen=True)
class Layout:
    """The shape of a rig.

    Parameters
    ----------
    rig : str
        Its name, the beginning of all its namespaces' names.
    count : int
        Hosts.
    rates : tuple of float or None
        Bits per second of each host's link, in each direction; None where it is not shaped.
    loss : float
        The probability with which a host loses a packet that it receives.
    ipv6 : bool
        IPv6 only: names lead there, and there are no IPv4 addresses but loopback's.
    mtu : int
        Bytes of an IP packet.
    congestion : str or None
        TCP's congestion control, where it is not to be the machine's.
    """

    rig: str
    count: int
    rates: tuple[float | None, ...]
    loss: float = 0.0
    ipv6: bool = False
    mtu: int = 1500
    congestion: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_HOSTS:
            raise ValueError(f"hosts: {self.count} is not between 1 and {MAX_HOSTS}")
        if len(self.rates) != self.count:
            raise ValueError(f"rate: {len(self.rates)} rates for {self.count} hosts")
        if not 0 <= self.loss < 1:
            raise ValueError(f"loss: {self.loss} is not a probability below 1")
        if not 1280 <= self.mtu <= 65535:
            raise ValueError(f"mtu: {self.mtu} is not between 1280 (the least for IPv6) and 65535")

    @property
    def switch(self) -> str:
        """The namespace of the bridge."""
        return f"{self.rig}-switch"

    def namespace(self, host: int) -> str:
        """Return the network namespace of a host."""
        return f"{self.rig}-{self.name(host)}"

    def name(self, host: int) -> str:
        """Return the hostname of a host."""
        return f"host{self.checked(host)}"

    def checked(self, host: int) -> int:
        """Return the index of a host if there is one.

        Raises
        ------
        ValueError
            If there is none.
        """
        if not 0 <= host < self.count:
            raise ValueError(f"host {host}: there are hosts 0 to {self.count - 1}")
        return host

    def address(self, host: int, version: int | None = None) -> str:
        """Return a host's address: the one its name leads to, or that of IP version 4 or 6."""
        if version == 4 and self.ipv6:
            raise ValueError("an IPv6 rig has no IPv4 addresses")
        network = NETWORK6 if version == 6 or (version is None and self.ipv6) else NETWORK
        return str(network[self.checked(host) + 1])

    # ---- files -------------------------------------------------------------------------------------------------------

    def hosts_file(self) -> str:
        """Return /etc/hosts, the same on all. A name leads to one address; host0-v6 to the IPv6 one on every rig."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        lines += [f"{self.address(host)} {self.name(host)}" for host in range(self.count)]
        lines += [f"{self.address(host, 6)} {self.name(host)}-v6" for host in range(self.count)]
        return "\n".join(lines) + "\n"

    def configuration(self, host: int) -> dict[str, str]:
        """Return the files that a host has in place of the machine's in /etc. Names come from files, not from DNS."""
        kinds = ("passwd", "group", "shadow", "hosts", "networks", "protocols", "services", "ethers", "rpc")
        switch = "".join(f"{kind}: files\n" for kind in kinds)
        return {"hosts": self.hosts_file(), "hostname": self.name(host) + "\n", "nsswitch.conf": switch}

    def host_sysctls(self) -> dict[str, str]:
        """Return the settings of a host's kernel, by path under /proc/sys."""
        congestion = {"net/ipv4/tcp_congestion_control": self.congestion} if self.congestion else {}
        return {**HOST_SYSCTLS, **congestion}

    # ---- batches, each run in the namespace it is for ----------------------------------------------------------------

    def switch_links(self) -> str:
        """Return the batch for `ip` that makes the bridge."""
        return (
            "link set lo up\n"
            f"link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
            f"link set bridge mtu {self.mtu} up\n"
        )

    def host_links(self, host: int) -> str:
        """Return the batch for `ip` on a host. The other end of its link goes to SWITCH, a process the keeper knows."""
        lines = [
            "link set lo up",
            f"link add eth0 mtu {self.mtu} address {self.mac(host)} type veth "
            f"peer name port{host} mtu {self.mtu} netns SWITCH",
            f"addr add {self.address(host, 6)}/{NETWORK6.prefixlen} dev eth0 nodad",
        ]
        if not self.ipv6:
            lines.append(f"addr add {self.address(host, 4)}/{NETWORK.prefixlen} dev eth0")
        return "\n".join([*lines, f"link set eth0 {self._segments(host)} up"]) + "\n"

    def _segments(self, host: int) -> str:
        """Say how much the kernel may hand to a host's link in one piece."""
        rate = self.rates[host]
        if self.loss:
            return "gso_max_segs 1"  # a lost packet must be one packet of the wire, not 44 in a row
        return "" if rate is None else f"gso_max_size {Shaping.of(rate, self.mtu).segment_bytes}"

    def mac(self, host: int) -> str:
        """Return the link address of a host: the same in every run, so that captures can be compared."""
        return f"02:77:00:00:00:{self.checked(host) + 1:02x}"

    def switch_ports(self) -> str:
        """Return the batch for `ip` in the switch once all hosts have plugged in."""
        return "".join(f"link set port{host} master bridge up\n" for host in range(self.count))

    def host_shape(self, host: int) -> str:
        """Return the batch for `tc` on a host: what it sends. Empty where it is not shaped."""
        return self._shape("eth0", self.rates[host])

    def switch_shape(self) -> str:
        """Return the batch for `tc` in the switch: what the hosts receive."""
        return "".join(self._shape(f"port{host}", rate) for host, rate in enumerate(self.rates))

    def _shape(self, device: str, rate: float | None) -> str:
        if rate is None:
            return ""
        shaping = Shaping.of(rate, self.mtu)
        return (
            f"qdisc add dev {device} root tbf rate {rate:.0f}bit "
            f"burst {shaping.burst_bytes} limit {shaping.limit_bytes}\n"
        )

    def loss_rules(self) -> str:
        """Return the input for iptables-restore and ip6tables-restore; empty without loss."""
        if not self.loss:
            return ""
        rule = f"-A INPUT -i eth0 -m statistic --mode random --probability {self.loss:.9f} -j DROP"
        return f"*filter\n{rule}\nCOMMIT\n"


@dataclass(frozen=True)
class Shaping:
    """How a link of some rate is made with token buckets (tbf): one where a host sends, one where it receives.

    `tbf` lets `burst` bytes through at once and earns tokens at `rate`; what is over waits in a queue of `limit` bytes.

    - The burst is what the link sends in 0.4 ms: 50 kB at 1 Gbit/s. A timer that comes later than it takes to fill the
      bucket loses tokens for good, and on a busy machine timers are late by some tenths of a millisecond; on the other
      hand a message smaller than the burst, after a pause, does not see the rate at all, so it must not be generous.
    - The kernel hands pieces of up to 64 KiB to the link (segmentation offload), and tbf cuts those that are larger
      than the burst into single packets, at a third of the speed. So the pieces are kept to a third of the burst, which
      leaves two thirds for late timers. (With pieces of 8 kB the machine's cores, not the link, were the limit.)
    - The queue holds 30 ms: some 3.7 MB at 1 Gbit/s, as in a switch with a small shared buffer. One TCP stream does not
      fill it (its sender stops at two milliseconds of its own), some that meet at one port do after a while.

    With this, iperf3 gets 94 to 95.6 % of 1 Gbit/s; 95.6 % is all that headers leave (1448 bytes of 1514).
    """

    burst_bytes: int
    limit_bytes: int
    segment_bytes: int

    @classmethod
    def of(cls, rate: float, mtu: int) -> Shaping:
        """Return the shaping for a rate in bits per second."""
        frame = mtu + 14
        burst = max(int(rate / 8 * 0.4e-3), 6 * frame)
        limit = max(int(rate / 8 * 30e-3), 64 * frame) + burst
        return cls(burst, limit, min(burst // 3, 65536))
