"""Hosts made of network namespaces, to test on one machine what happens between several: see docs/hosts.md.

`python -m tests.hosts --help` is the command line. Needs root, iproute2, iptables and, for figures, iperf3.
"""

from tests.hosts.launch import goodput, mpirun, round_trip, torchrun
from tests.hosts.ranks import communicator, init_process_group, run_ranks_on_hosts
from tests.hosts.rig import CommandFailed, Hosts, HostsError, wait_until, why_not

__all__ = [
    "CommandFailed",
    "Hosts",
    "HostsError",
    "communicator",
    "goodput",
    "init_process_group",
    "mpirun",
    "round_trip",
    "run_ranks_on_hosts",
    "torchrun",
    "wait_until",
    "why_not",
]
