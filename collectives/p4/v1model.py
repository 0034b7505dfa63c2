"""A switch with the architecture v1model, as BMv2's simple_switch has it: state between packets, and the pipeline.

A packet is parsed, its checksums verified, and the ingress decides: a multicast group that is not 0 replicates it; else
port 511 drops it; else it goes to ``egress_spec`` (port 0 where nobody set it). Each copy passes the egress, which may
drop it again, and is deparsed; what the parser left is its payload.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from collectives.p4.checksums import ALGORITHMS, join_bits
from collectives.p4.errors import P4RuntimeError
from collectives.p4.generate_externs import DROP_PORT
from collectives.p4.program import Program
from collectives.p4.registers import Counter, Named, Register
from collectives.p4.tables import Table

_REPLICATED = 5  # instance_type of a copy that multicast made
_TIME_MASK = (1 << 48) - 1


class MulticastGroups(dict[int, list[tuple[int, int]]]):
    """Group -> the copies that it makes, as (egress port, replication id)."""

    def __setitem__(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        if not 1 <= group <= 0xFFFF:
            raise ValueError(f"a multicast group is a number from 1 to 65535, not {group}")
        checked = [(int(port), int(rid)) for port, rid in copies]
        for port, rid in checked:
            if not 0 <= port < DROP_PORT or not 0 <= rid <= 0xFFFF:
                raise ValueError(f"group {group}: no copy can go to port {port} with id {rid}")
        super().__setitem__(group, checked)


class V1Switch:
    """State and pipeline of one switch.

    Parameters
    ----------
    program : Program
        What it runs.
    seed : int
        What ``random`` draws from; chance is an argument.

    Attributes
    ----------
    tables : mapping of str to Table
        ``switch.tables["Ingress.admit"].add(key=..., action=..., params=...)``.
    registers : mapping of str to Register
        ``switch.registers["Ingress.pool.value_0"][index]``, to get and to set.
    counters : mapping of str to Counter
        ``switch.counters["Ingress.seen"][index]`` gives (packets, bytes).
    multicast : mapping of int to list of (port, replication id)
        ``switch.multicast[1] = [(0, 0), (1, 1)]``.
    on_log : callable or None
        Gets each text of ``log_msg``.
    """

    def __init__(self, program: Program, seed: int = 0) -> None:
        self.program = program
        layout = program.compiled.layout
        self.registers: Named[Register] = Named("register")
        self.counters: Named[Counter] = Named("counter")
        self.tables: Named[Table] = Named("table")
        self.multicast = MulticastGroups()
        self.on_log: Callable[[str], None] | None = None
        self._bytes = [0]
        for name, register in layout.registers.items():
            self.registers[name] = Register(name, register.size, register.kind)
        for name, counter in layout.counters.items():
            self.counters[name] = Counter(name, counter.size)
        for name, table in layout.tables.items():
            self.tables[name] = Table(name, table, self.counters[table.counter] if table.counter else None)
            self.tables[name].set_packet_bytes(self._bytes)
        self._random = random.Random(seed)
        # What the generated code reads and writes for the packet at hand.
        self.packet_bytes = 0
        self.payload = b""
        self.truncate_bytes: int | None = None
        self.standard_metadata: Any = None
        names = program.namespace
        blocks = names["build"](self)
        self._parser, self._verify, self._ingress = blocks["parser"], blocks["verify"], blocks["ingress"]
        self._egress, self._compute, self._deparser = blocks["egress"], blocks["compute"], blocks["deparser"]
        compiled = program.compiled
        self._headers, self._metadata = names[compiled.headers], names[compiled.metadata]
        self._standard = names[compiled.standard]
        self._has_egress = "egress" not in compiled.empty
        self._is_plain = {"egress", "compute"} <= compiled.empty  # then all copies of a packet are the same

    def process(self, packet: bytes, ingress_port: int, now_us: int) -> list[tuple[int, bytes]]:
        """Run one packet through the pipeline.

        Parameters
        ----------
        packet : bytes
            The whole frame.
        ingress_port : int
            Where it came in, 0 to 510.
        now_us : int
            The time, which the program reads as ``ingress_global_timestamp`` (its lower 48 bits).

        Returns
        -------
        list of (int, bytes)
            What leaves, as (egress port, frame), in the order of the multicast group; empty where it was dropped.

        Raises
        ------
        P4RuntimeError
            If the program indexes a register or stack out of its range, or an assert does not hold.
        ValueError
            If there is no such port.
        """
        if not 0 <= ingress_port < DROP_PORT:
            raise ValueError(f"a port is a number from 0 to {DROP_PORT - 1}, not {ingress_port}")
        size = len(packet)
        headers, meta, standard = self._headers(), self._metadata(), self._standard()
        standard.f_ingress_port = ingress_port
        standard.f_packet_length = size & 0xFFFFFFFF
        standard.f_ingress_global_timestamp = now_us & _TIME_MASK
        self.packet_bytes = self._bytes[0] = size
        self.standard_metadata = standard
        self.truncate_bytes = None
        try:
            used = self._parser(packet, size, headers, meta, standard)
            self.payload = packet[used:]
            self._verify(headers, meta)
            self._ingress(headers, meta, standard)
            group = standard.f_mcast_grp
            if group:
                return self._replicate(self.multicast.get(group, ()), headers, meta, standard, now_us)
            port = standard.f_egress_spec
            if port == DROP_PORT:
                return []
            frame = self._leave(port, 0, headers, meta, standard, now_us)
            return [] if frame is None else [(port, frame)]
        except IndexError as error:
            raise P4RuntimeError(
                self.program.where(error),
                "an index is out of range; check it before the access, or make the register or stack larger",
            ) from error

    def _replicate(
        self, copies: Sequence[tuple[int, int]], headers: Any, meta: Any, standard: Any, now_us: int
    ) -> list[tuple[int, bytes]]:
        """Send a packet to each member of a multicast group."""
        standard.f_instance_type = _REPLICATED
        if self._is_plain and copies:
            frame = self._leave(*copies[0], headers, meta, standard, now_us)
            return [] if frame is None else [(port, frame) for port, _ in copies]
        out = []
        truncate_bytes = self.truncate_bytes
        for port, rid in copies:
            self.truncate_bytes = truncate_bytes
            frame = self._leave(port, rid, headers.copy(), meta.copy(), standard.copy(), now_us)
            if frame is not None:
                out.append((port, frame))
        return out

    def _leave(self, port: int, rid: int, headers: Any, meta: Any, standard: Any, now_us: int) -> bytes | None:
        """Run egress and deparser for one copy; return the frame, or None where it was dropped."""
        if self._has_egress:
            standard.f_egress_port = port
            standard.f_egress_rid = rid
            standard.f_egress_spec = 0
            standard.f_egress_global_timestamp = now_us & _TIME_MASK
            self._egress(headers, meta, standard)
            if standard.f_egress_spec == DROP_PORT:
                return None
        self._compute(headers, meta)
        parts: list[bytes] = []
        self._deparser(parts, headers)
        parts.append(self.payload)
        frame = b"".join(parts)
        return frame if self.truncate_bytes is None else frame[: self.truncate_bytes]

    # ---- what the generated code calls

    def random_between(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both included."""
        return self._random.randint(min(low, high), max(low, high))

    def checksum(self, algorithm: int, fields: list[tuple[int, int]], payload: bytes) -> int:
        """Return a hash of fields, given as (number, bits), and what follows them."""
        function = ALGORITHMS[algorithm]
        return self._random.getrandbits(32) if function is None else function(join_bits(fields) + payload)

    def hash(self, algorithm: int, base: int, fields: list[tuple[int, int]], limit: int) -> int:
        """Return ``base`` plus a hash modulo ``limit``; ``base`` alone where the limit is 0."""
        return base + self.checksum(algorithm, fields, b"") % limit if limit else base

    def log_message(self, text: str, values: tuple[Any, ...]) -> None:
        """Hand a text of ``log_msg`` on, its ``{}`` replaced by the values."""
        if self.on_log is not None:
            for value in values:
                text = text.replace("{}", str(value), 1)
            self.on_log(text)
