"""An interpreter for P4_16: the subset of the language and of v1model that aggregation programs use.

::

    from collectives import p4

    program = p4.load("p4/arch/v1model.p4", defines={"LANES": 64})
    switch = p4.V1Switch(program)
    switch.tables["Ingress.admit"].add(key={...}, action="Ingress.set_worker", params={...})
    for port, frame in switch.process(packet, ingress_port=1, now_us=0):
        ...

A program is checked, then compiled to Python functions. docs/p4-interpreter.md tells what is in the subset.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("lark") is None:
    raise ImportError("collectives.p4 needs lark to read P4: pip install collectives[p4]")

from collectives.p4.errors import P4Error, P4RuntimeError, Position
from collectives.p4.program import Program, check, load
from collectives.p4.registers import Count, Counter, Register
from collectives.p4.tables import Entry, Table
from collectives.p4.v1model import V1Switch

__all__ = [
    "Count",
    "Counter",
    "Entry",
    "P4Error",
    "P4RuntimeError",
    "Position",
    "Program",
    "Register",
    "Table",
    "V1Switch",
    "check",
    "load",
]
