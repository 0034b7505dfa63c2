"""Tables while a program runs: the entries, the lookup, and what the control plane may do. Used by the switch.

An element of a key is given, by the way in which it is matched, as: ``exact`` a value; ``lpm`` (value, prefix length);
``ternary`` (value, mask) or None for any; ``range`` (least, greatest) or None; ``optional`` a value or None. Where keys
are ternary, range or optional, the greatest priority wins, and among equals the entry that was added first. Else the
longest prefix wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from collectives.p4 import types as t
from collectives.p4.errors import counted
from collectives.p4.generate_base import ActionLayout, KeyLayout, TableLayout
from collectives.p4.registers import Counter
from collectives.p4.scope import suggestion

Result = tuple[bool, int, tuple[Any, ...]]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry, as :meth:`Table.entries` lists it."""

    key: tuple[Any, ...]
    action: str
    params: dict[str, Any]
    priority: int | None


@dataclasses.dataclass
class _Row:
    """An entry that is matched by looking at one after the other: per key (mask, value) or (least, greatest)."""

    key: tuple[Any, ...]
    tests: list[tuple[bool, int, int]]
    priority: int
    result: Result

    def matches(self, key: tuple[Any, ...]) -> bool:
        for value, (is_range, one, other) in zip(key, self.tests, strict=False):
            if not (one <= value <= other if is_range else value & one == other):
                return False
        return True


class Table:
    """A table of the program.

    Parameters
    ----------
    name : str
        As the control plane knows it.
    layout : TableLayout
        What the source says of it.
    counter : Counter or None
        Its direct counter.
    """

    def __init__(self, name: str, layout: TableLayout, counter: Counter | None) -> None:
        self.name = name
        self._layout = layout
        self._counter = counter
        self._packet_bytes = [0]
        self._miss: Result = (False, *layout.default)
        matches = [key.match for key in layout.keys]
        self._by_priority = any(match in ("ternary", "range", "optional") for match in matches)
        self._lpm = matches.index("lpm") if "lpm" in matches and not self._by_priority else None
        self._exact: dict[tuple[Any, ...], Result] = {}  # exact keys; with lpm under (length, key cut to it)
        self._lengths: list[tuple[int, int]] = []  # (prefix length, mask), the longest first
        self._rows: list[_Row] = []
        self.lookup = self._choose_lookup()
        if counter is not None:
            counter.key_of = self._key
        self._fill()

    def _fill(self) -> None:
        """Add the entries of the source; the first has the greatest priority."""
        count = len(self._layout.entries)
        for number, entry in enumerate(self._layout.entries):
            self._insert(tuple(entry.keys), count - number, (True, entry.action, entry.data))

    # ---- what the program does

    def _choose_lookup(self) -> Any:
        plain = self._find_row if self._by_priority else self._find_exact if self._lpm is None else self._find_prefix
        if self._counter is None and plain == self._find_exact:
            return self._find_exact
        return self._find_and_count if self._counter is not None else lambda key: plain(key)[0]

    def _find_exact(self, key: tuple[Any, ...]) -> Any:
        """Return (hit, number of the action, its data)."""
        return self._exact.get(key) or self._miss

    def _find_prefix(self, key: tuple[Any, ...]) -> tuple[Result, Any]:
        at = self._lpm
        assert at is not None
        for length, mask in self._lengths:
            cut = (*key[:at], (key[at] & mask, length), *key[at + 1 :])
            found = self._exact.get(cut)
            if found is not None:
                return found, cut
        return self._miss, None

    def _find_row(self, key: tuple[Any, ...]) -> tuple[Result, Any]:
        for row in self._rows:
            if row.matches(key):
                return row.result, row.key
        return self._miss, None

    def _find_and_count(self, key: tuple[Any, ...]) -> Result:
        if self._by_priority:
            result, entry = self._find_row(key)
        elif self._lpm is not None:
            result, entry = self._find_prefix(key)
        else:
            result, entry = self._find_exact(key), key
        if result[0] and self._counter is not None:
            self._counter.count(entry, self._packet_bytes[0])
        return result

    # ---- what the control plane does

    def add(
        self,
        key: Mapping[str, Any] | Sequence[Any] | int,
        action: str,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> None:
        """Add an entry.

        Parameters
        ----------
        key : mapping, sequence or int
            By the names of the keys (as in the source), or in their order, or the one key's; the module says in which
            form.
        action : str
            ``Ingress.set_worker``, or the part after the last dot where that is plain.
        params : mapping
            The action's data by the names of its parameters that have no direction.
        priority : int
            Needed where keys are ternary, range or optional, and only there; the greatest wins.

        Raises
        ------
        ValueError
            If the key, action, data or priority do not fit, the table is full, or has such an entry already.
        """
        self._may_change()
        parts = self._key(key)
        if self._by_priority != (priority is not None):
            need = "needs a priority" if self._by_priority else "takes no priority; the key decides"
            raise ValueError(f"table {self.name}: an entry {need}")
        number, data = self._action(action, params or {})
        if len(self.entries()) >= self._layout.size:
            raise ValueError(f"table {self.name} is full: it has {self._layout.size} entries; make its size larger")
        if self._position(parts, priority) is not None:
            raise ValueError(f"table {self.name} has an entry with the key {parts} already; delete it first")
        self._insert(parts, priority or 0, (True, number, data))

    def delete(self, key: Mapping[str, Any] | Sequence[Any] | int, priority: int | None = None) -> None:
        """Delete the entry with this key (and priority, where it has one).

        Raises
        ------
        ValueError
            If there is none.
        """
        self._may_change()
        parts = self._key(key)
        found = self._position(parts, priority)
        if found is None:
            raise ValueError(f"table {self.name} has no entry with the key {parts}")
        if self._by_priority:
            del self._rows[found]
        else:
            del self._exact[found]
            self._sort_lengths()

    def clear(self) -> None:
        """Delete every entry that was added, and put those of the source back."""
        self._may_change()
        self._exact.clear()
        self._rows.clear()
        self._lengths.clear()
        self._fill()

    def set_default(self, action: str, params: Mapping[str, Any] | None = None) -> None:
        """Set the action that runs where no entry matches.

        Raises
        ------
        ValueError
            If the action or its data do not fit, or the source has a const default action.
        """
        if self._layout.default_is_constant:
            raise ValueError(f"table {self.name} has a const default_action; take const away in the source")
        self._miss = (False, *self._action(action, params or {}))

    def entries(self) -> list[Entry]:
        """Return the entries, in the order in which they are tried."""
        if self._by_priority:
            return [self._entry(row.key, row.result, row.priority) for row in self._rows]
        return [self._entry(key, result, None) for key, result in self._exact.items()]

    def _entry(self, key: tuple[Any, ...], result: Result, priority: int | None) -> Entry:
        action = self._layout.actions[result[1]]
        names = [name for name, _ in action.parameters]
        return Entry(key, action.name, dict(zip(names, result[2], strict=False)), priority)

    def _may_change(self) -> None:
        if self._layout.entries_are_constant:
            raise ValueError(f"table {self.name} has const entries; take const away in the source to change them")

    # ---- checks

    def _key(self, key: Mapping[str, Any] | Sequence[Any] | int) -> tuple[Any, ...]:
        """Return a key's elements in order, checked."""
        layouts = self._layout.keys
        names = [layout.name for layout in layouts]
        if isinstance(key, Mapping):
            if set(key) != set(names):
                raise ValueError(f"table {self.name} has the keys {', '.join(names)}, not {', '.join(map(str, key))}")
            given = [key[name] for name in names]
        elif len(layouts) == 1 and (isinstance(key, int) or (isinstance(key, tuple) and layouts[0].match != "exact")):
            given = [key[0] if isinstance(key, tuple) and len(key) == 1 else key]
        elif isinstance(key, Sequence):
            given = list(key)
        else:
            given = [key]
        if len(given) != len(layouts):
            raise ValueError(
                f"table {self.name} has {counted(len(layouts), 'key')} ({', '.join(names)}), not {len(given)}"
            )
        return tuple(self._element(layout, value) for layout, value in zip(layouts, given, strict=False))

    def _element(self, layout: KeyLayout, value: Any) -> Any:
        """Check one element of a key and return it in the form that lookups use."""
        what = f"key {layout.name} of table {self.name}"
        inner = t.bare(layout.kind)
        width = t.width_of(inner) or 32
        full = (1 << width) - 1
        if layout.match in ("exact", "optional"):
            return None if value is None and layout.match == "optional" else in_range(value, layout.kind, what)
        if value is None and layout.match != "lpm":
            return (0, 0) if layout.match == "ternary" else (0, full)
        if not isinstance(value, tuple | list) or len(value) != 2:
            form = {"lpm": "(value, prefix length)", "ternary": "(value, mask)", "range": "(least, greatest)"}
            raise ValueError(f"{what} is matched {layout.match}: give {form[layout.match]}, not {value!r}")
        first = in_range(value[0], layout.kind, what)
        if layout.match == "lpm":
            if not 0 <= value[1] <= width:
                raise ValueError(f"{what}: a prefix of {value[1]} bits; there are {width}")
            mask = full ^ (full >> value[1])
            return (first & mask, value[1])
        second = in_range(value[1], layout.kind, what)
        if layout.match == "ternary":
            return (first & second, second)
        if first > second:
            raise ValueError(f"{what}: the range ({first}, {second}) is empty")
        return (first, second)

    def _action(self, name: str, params: Mapping[str, Any]) -> tuple[int, tuple[Any, ...]]:
        """Return the number of an action, and its data in order, checked."""
        layouts = self._layout.actions
        fitting = [n for n, one in enumerate(layouts) if name in (one.name, one.name.rpartition(".")[2])]
        if not fitting:
            names = [one.name for one in layouts]
            hint = suggestion(name, names) or f"it has {', '.join(names)}"
            raise ValueError(f"table {self.name} has no action {name}; {hint}")
        action: ActionLayout = layouts[fitting[0]]
        wanted = [parameter for parameter, _ in action.parameters]
        if set(params) != set(wanted):
            raise ValueError(f"action {action.name} takes {', '.join(wanted) or 'no data'}, not {', '.join(params)}")
        what = f"of action {action.name}"
        return fitting[0], tuple(in_range(params[one], kind, f"{one} {what}") for one, kind in action.parameters)

    # ---- storage

    def _position(self, key: tuple[Any, ...], priority: int | None) -> Any:
        """Return where an entry is kept; None where there is none."""
        if self._by_priority:
            rows = enumerate(self._rows)
            return next((n for n, row in rows if row.key == key and priority in (None, row.priority)), None)
        return key if key in self._exact else None

    def _insert(self, key: tuple[Any, ...], priority: int, result: Result) -> None:
        """Add an entry whose key is in the form of lookups, or of the compiler (None for any)."""
        key = tuple(
            self._element(layout, part) if part is not None else self._any(layout)
            for layout, part in zip(self._layout.keys, key, strict=False)
        )
        if self._by_priority:
            row = _Row(
                key,
                [self._test(layout, part) for layout, part in zip(self._layout.keys, key, strict=False)],
                priority,
                result,
            )
            place = next((n for n, other in enumerate(self._rows) if other.priority < priority), len(self._rows))
            self._rows.insert(place, row)
            return
        self._exact[key] = result
        self._sort_lengths()

    def _any(self, layout: KeyLayout) -> Any:
        return (0, 0) if layout.match == "lpm" else self._element(layout, None)

    def _sort_lengths(self) -> None:
        if self._lpm is None:
            return
        width = t.width_of(self._layout.keys[self._lpm].kind) or 0
        full = (1 << width) - 1
        lengths = sorted({key[self._lpm][1] for key in self._exact}, reverse=True)
        self._lengths[:] = [(length, full ^ (full >> length)) for length in lengths]

    def _test(self, layout: KeyLayout, part: Any) -> tuple[bool, int, int]:
        """Return how a row tests one element: (is a range, least or mask, greatest or value)."""
        width = t.width_of(t.bare(layout.kind)) or 32
        full = (1 << width) - 1
        if layout.match == "range":
            return (True, *part)
        if layout.match == "lpm":
            return False, full ^ (full >> part[1]), part[0]
        if layout.match == "ternary":
            return False, part[1], part[0]
        return (False, 0, 0) if part is None else (True, part, part)

    def set_packet_bytes(self, cell: list[int]) -> None:
        """Tell where the length of the packet at hand is kept, for the direct counter."""
        self._packet_bytes = cell


def in_range(value: Any, kind: t.Type, what: str) -> Any:
    """Return a value that the control plane gives, checked against its type.

    Raises
    ------
    ValueError
        If it is no whole number, or outside the type.
    """
    inner = t.bare(kind)
    if isinstance(inner, t.Enum) and inner.under is not None:
        inner = inner.under
    if not isinstance(value, int):
        raise ValueError(f"{what} is {kind}: give a whole number, not {value!r}")
    if inner is t.BOOL:
        return bool(value)
    if isinstance(inner, t.Bits) and not inner.lowest <= value <= inner.highest:
        raise ValueError(f"{what} is {kind}, and {value} does not fit")
    return int(value)
