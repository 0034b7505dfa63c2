"""Commands for BMv2's ``simple_switch_CLI``: a :class:`~collectives.p4.aggregation.Target` of the control plane.

::

    commands = Commands()
    Control(commands, max_slots=256).admit(job=7, incarnation=1, workers=[...], slots=16)
    subprocess.run(["simple_switch_CLI"], input=commands.text(), text=True)

Entries are never named by the handles that the command line would print: an entry is removed by clearing its table and
adding the others again. Multicast nodes are numbered by a new switch from 0, and never removed; so the commands are for
a new switch, and one Commands for each. Imports nothing of the interpreter's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Commands:
    """Collects commands, in order.

    Attributes
    ----------
    lines : list of str
        The commands so far.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._entries: dict[str, dict[tuple[int, ...], str]] = {}
        self._next_node = 0

    def text(self) -> str:
        """Return all commands, a line each."""
        return "".join(f"{line}\n" for line in self.lines)

    def add(self, table: str, key: Sequence[int], action: str, params: Mapping[str, int]) -> None:
        """Add an entry; the parameters are in the order of the action's."""
        line = f"table_add {table} {action} {_numbers(key)} => {_numbers(params.values())}"
        self._entries.setdefault(table, {})[tuple(key)] = line
        self.lines.append(line)

    def delete(self, table: str, key: Sequence[int]) -> None:
        """Remove an entry. The table is empty for an instant, in which packets are a stranger's: they are repeated."""
        del self._entries[table][tuple(key)]
        self.lines.append(f"table_clear {table}")
        self.lines += self._entries[table].values()

    def set_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group: a node a copy, since each has a number (rid) of its own."""
        self.lines.append(f"mc_mgrp_create {group}")
        for port, rid in copies:
            self.lines.append(f"mc_node_create {rid} {port}")
            self.lines.append(f"mc_node_associate {group} {self._next_node}")
            self._next_node += 1

    def delete_group(self, group: int) -> None:
        """Remove a multicast group. Its nodes stay, in no group, which costs some memory."""
        self.lines.append(f"mc_mgrp_destroy {group}")


def _numbers(values: Iterable[int]) -> str:
    return " ".join(str(value) for value in values)


__all__ = ["Commands"]
