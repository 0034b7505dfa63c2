"""Makes switches out of fragments of P4 for the tests."""

from __future__ import annotations

import pathlib

from collectives import p4

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"

# A whole program around a fragment. The packet is the header `h`, and comes back on port 1 with what the ingress made
# of it.
FRAME = """
#include <v1model.p4>
{types}
header data_t {{ {fields} }}
struct headers_t {{ data_t h; {headers} }}
struct meta_t {{ {meta} }}
parser TestParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {{
    state start {{ packet.extract(hdr.h); {parse} }}
}}
control TestVerify(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control TestIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {{
{locals}
    apply {{
        standard.egress_spec = 1;
{apply}
    }}
}}
control TestEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {{
    apply {{ {egress} }}
}}
control TestCompute(inout headers_t hdr, inout meta_t meta) {{ apply {{ {compute} }} }}
control TestDeparser(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(TestParser(), TestVerify(), TestIngress(), TestEgress(), TestCompute(), TestDeparser()) main;
"""
_PARTS = dict.fromkeys(("types", "fields", "headers", "meta", "locals", "apply", "egress", "compute"), "")


def source(**parts: str) -> str:
    """Return a whole program; the parts are those of FRAME."""
    defaults = _PARTS | {"fields": "bit<8> a;", "parse": "transition accept;"}
    return FRAME.format(**(defaults | parts))


def program(folder: pathlib.Path, text: str, **defines: object) -> p4.Program:
    """Load a program from its text."""
    path = folder / "test.p4"
    path.write_text(text)
    return p4.load(path, defines=defines)


def switch(folder: pathlib.Path, seed: int = 0, **parts: str) -> p4.V1Switch:
    """Return a switch that runs FRAME with these parts."""
    return p4.V1Switch(program(folder, source(**parts)), seed=seed)


def through(one: p4.V1Switch, packet: bytes, port: int = 0, now_us: int = 0) -> bytes:
    """Return what one packet becomes; it must come back as one."""
    ((_, frame),) = one.process(packet, port, now_us)
    return frame
