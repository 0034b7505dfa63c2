"""Puts a program together: each instance of a control, each function and the parser as one Python function.

``compile_program`` takes a checked source and returns Python text whose ``build(state)`` gives the pipeline over the
objects that a switch keeps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Iterator
from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.errors import P4Error, Position
from collectives.p4.generate_base import CounterLayout, Layout, RegisterLayout, walk
from collectives.p4.generate_parsers import ParserGenerator
from collectives.p4.layouts import class_name, has_varbit, initial, struct_format, write_class
from collectives.p4.scope import Symbol
from collectives.p4.writer import Writer

# The blocks of V1Switch, in the order of its arguments.
BLOCKS = ("parser", "verify", "ingress", "egress", "compute", "deparser")


@dataclasses.dataclass
class Compiled:
    """A program as Python text.

    ``positions[n]`` is the P4 place of its line n (from 0); ``structs`` are headers' layouts in packets; ``empty``
    are the blocks that do nothing; ``headers``, ``metadata`` and ``standard`` name the classes of a packet's parts.
    """

    text: str
    positions: list[Position]
    layout: Layout
    structs: dict[str, struct.Struct]
    empty: set[str]
    headers: str
    metadata: str
    standard: str


class Generator(ParserGenerator):
    """The whole compiler."""

    def __init__(self, errors: dict[str, int]) -> None:
        super().__init__()
        self.errors = errors
        self.functions: list[Writer] = []
        self.bindings: list[str] = []  # lines that give state's objects their names
        self._written: dict[str, str] = {}
        self._controls: dict[str, tuple[str, bool]] = {}  # path of an instance -> its function, whether it exits
        self._applied: dict[str, ast.Call] = {}
        self._exits: dict[int, bool] = {}
        self._instances: dict[Symbol, str] = {}  # instance of a control -> path, in the control at hand
        self._global_objects: dict[Symbol, tuple[str, str]] = {}

    # ---- functions

    @contextlib.contextmanager
    def _function(self, opening: str, path: str) -> Iterator[None]:
        """Write a function in a writer of its own, with fresh names."""
        keep = (
            "writer",
            "names",
            "path",
            "frames",
            "results",
            "aliases",
            "roots",
            "objects",
            "table_paths",
            "_instances",
        )
        saved = {name: getattr(self, name) for name in (*keep, "values")}
        writer = Writer()
        writer.position = self.writer.position
        self.writer, self.names, self.path, self.frames, self.aliases, self.roots = writer, {}, path, [], {}, set()
        self.objects, self.table_paths, self._instances = dict(self._global_objects), {}, {}
        with writer.block(opening):
            start = len(writer.lines)
            yield
            writer.insert(start, [f"{name} = {text}" for text, name in self.aliases.items()], 1)
        self.functions.append(writer)
        for name, value in saved.items():
            setattr(self, name, value)

    def _bind(self, parameters: list[ast.Parameter], names: list[str]) -> None:
        """Give parameters their Python names."""
        for parameter, name in zip(parameters, names, strict=False):
            self.names[parameter.symbol] = name
            kind = self.use(parameter.symbol.type)
            if t.is_aggregate(kind):
                self.roots.add(name)

    def _set_results(self, parameters: list[ast.Parameter], exits: bool) -> None:
        """Settle what the function at hand returns: whether it exited, and its out parameters that are scalars."""
        outs = [
            self.names[one.symbol]
            for one in parameters
            if one.direction in ("out", "inout") and not t.is_aggregate(one.symbol.type)
        ]

        def results(exited: bool) -> str:
            parts = ([str(exited)] if exits else []) + outs
            return f"{', '.join(parts)}," if parts else ""

        self.results = results

    def function_for(self, signature: t.Callable) -> str:
        """Write a function where it is called first; return its name."""
        node: ast.Function = signature.node
        name = f"fn_{node.name}"
        if name not in self._written:
            self._written[name] = name
            names = [f"p_{one.name}" for one in node.parameters]
            with self._function(f"def {name}({', '.join(names)}):", ""):
                self._bind(node.parameters, names)
                self._set_results(node.parameters, False)
                for one, text in zip(node.parameters, names, strict=False):
                    if one.direction == "out" and not t.is_aggregate(one.symbol.type):
                        self.writer.line(f"{text} = {initial(one.symbol.type)}")
                assert node.body is not None
                self.statement(node.body)
                self.writer.line(f"return {self.results(False)}")
            self._drop_outs_from_signature(name, node)
        return name

    def _drop_outs_from_signature(self, name: str, node: Any) -> None:
        """Give out parameters that are scalars, which the caller does not pass, no place in the function's list."""
        writer = self.functions[-1]
        kept = [f"p_{one.name}" for one in node.parameters if one.direction != "out" or t.is_aggregate(one.symbol.type)]
        writer.lines[0] = f"def {name}({', '.join(kept)}):"

    # ---- controls

    def write_control(self, kind: t.Callable, path: str, values: dict[Symbol, Any]) -> tuple[str, bool]:
        """Write an instance of a control; return its function, and whether it may exit."""
        node: ast.Control = kind.node
        if path in self._controls:
            raise P4Error(node.position, f"two instances are named {path}; rename one, or take its @name away")
        name = f"c{len(self._controls)}_{kind.name}"
        exits = self.exits(node)
        self._controls[path] = name, exits
        names = [f"p_{one.name}" for one in node.parameters]
        with self._function(f"def {name}({', '.join(names)}):", path):
            self.values = values
            self._bind(node.parameters, names)
            self._set_results(node.parameters, exits)
            for one, text in zip(node.parameters, names, strict=False):
                if one.direction == "out" and not t.is_aggregate(one.symbol.type):
                    self.writer.line(f"{text} = {initial(one.symbol.type)}")
            self._locals(node.locals)
            assert node.body is not None
            self.statement(node.body)
            if text := self.results(False):
                self.writer.line(f"return {text}")
        self._drop_outs_from_signature(name, node)
        return name, exits

    def write_block(self, kind: t.Callable) -> str:
        """Write a control of the package; the same one may stand there twice, where it keeps nothing."""
        if kind.name in self._controls:
            paths = [*self.layout.registers, *self.layout.counters, *self.layout.tables]
            if not any(path.startswith(f"{kind.name}.") for path in paths):
                return self._controls[kind.name][0]
        return self.write_control(kind, kind.name, {})[0]

    def _locals(self, nodes: list[Any]) -> None:
        """Write and describe what stands before the apply block."""
        actions: dict[Symbol, str] = {}
        for node in nodes:
            self.at(node.position)
            if isinstance(node, ast.Variable):
                self.statement(node)
            elif isinstance(node, ast.Instance):
                self._instance(node)
            elif isinstance(node, ast.Action):
                actions[node.symbol] = self._path_of(node)
        for node in nodes:
            if isinstance(node, ast.Table):
                path = self._path_of(node)
                self.table_paths[node.symbol] = path
                self.lookups[path] = self._keep("L", f"state.tables[{path!r}].lookup")
                layout = self.describe(node, path, actions)
                counters = node.properties.get("counters")
                if isinstance(counters, ast.Name):
                    layout.counter = self.objects[counters.target][1]
                    self.layout.counters[layout.counter].table = path
                self.layout.tables[path] = layout

    def _path_of(self, node: ast.Declaration) -> str:
        """Return the name by which the control plane knows something."""
        shown = node.shown or node.name
        return shown[1:] if shown.startswith(".") else f"{self.path}.{shown}" if self.path else shown

    def _keep(self, letter: str, text: str) -> str:
        """Give an object of the state a Python name."""
        name = f"{letter}{len(self.bindings)}"
        self.bindings.append(f"{name} = {text}")
        return name

    def _instance(self, node: ast.Instance) -> None:
        """Describe an object, or write an instance of a control."""
        kind = node.symbol.type
        path = self._path_of(node)
        given = [self.constant(argument.value) for argument in node.arguments if argument.value is not None]
        if isinstance(kind, t.Callable):
            symbols = [parameter.symbol for parameter in kind.node.constructor]
            self.write_control(kind, path, dict(zip(symbols, given, strict=False)))
            self._instances[node.symbol] = path
            return
        self.objects[node.symbol] = self._object_of(node, kind, path, given)

    def _object_of(self, node: ast.Instance, kind: t.Extern, path: str, given: list[Any]) -> tuple[str, str]:
        """Describe an extern object; return its Python name and path."""
        name = kind.declaration.name
        if path in self.layout.registers or path in self.layout.counters:
            raise P4Error(node.position, f"two objects are named {path}; rename one")
        counts = ("packets", "bytes", "packets_and_bytes")
        if name == "register":
            item = t.bare(kind.arguments[0])
            if isinstance(item, t.Enum):
                item = item.under or item
            if not isinstance(item, t.Bits):
                raise P4Error(node.position, f"a register holds bit<W> or int<W>, not {item}")
            self.layout.registers[path] = RegisterLayout(given[0], item)
            return self._keep("R", f"state.registers[{path!r}].cells"), path
        if name == "counter":
            self.layout.counters[path] = CounterLayout(given[0], counts[given[1]])
        elif name == "direct_counter":
            self.layout.counters[path] = CounterLayout(None, counts[given[0]])
        else:
            raise P4Error(node.position, f"{kind} does not run here; only registers and counters do")
        return self._keep("C", f"state.counters[{path!r}]"), path

    def control_function(self, node: ast.Call) -> tuple[str, bool]:
        """Return the function of the instance that a call applies, and whether it may exit."""
        symbol = node.target.symbol
        if symbol is not None:
            path = self._instances[symbol]
        else:
            name = node.target.signature.name
            path = f"{self.path}.{name}"
            if path in self._controls:
                raise P4Error(
                    node.position,
                    f"{name}.apply stands at two places, and the objects of both would be named {path}; "
                    "declare two instances",
                )
            self.write_control(node.target.signature, path, {})
        if path in self._applied and any(table.startswith(f"{path}.") for table in self.layout.tables):
            self._fail_twice(node, path)
        self._applied[path] = node
        return self._controls[path]

    def _fail_twice(self, node: ast.Call, path: str) -> None:
        raise P4Error(
            node.position,
            f"{path} is applied at two places, and its tables would be too, which BMv2 cannot; declare two instances",
        )

    # ---- exit

    def exits(self, node: Any) -> bool:
        """Tell whether a control may exit, itself or through what it applies."""
        if id(node) not in self._exits:
            self._exits[id(node)] = any(self._exits_at(inner) for inner in walk(node.body))
        return self._exits[id(node)]

    def _exits_at(self, inner: Any) -> bool:
        if isinstance(inner, ast.Exit):
            return True
        if not isinstance(inner, ast.Call) or inner.target is None:
            return False
        target = inner.target
        if target.kind == "action":
            return self.exits(target.symbol.node)
        if target.kind == "table":
            return any(self.exits(reference.target.node) for reference in target.symbol.node.actions)
        return target.kind == "control" and self.exits(target.signature.node)

    # ---- the parser

    def write_parser(self, kind: t.Callable) -> None:
        """Write the parser of the switch."""
        node: ast.Parser = kind.node
        packet, headers, meta, standard = node.parameters
        with self._function("def parser(data, size, p_hdr, p_meta, p_std):", kind.name):
            self._bind([packet, headers, meta, standard], ["data", "p_hdr", "p_meta", "p_std"])
            self.metadata = "p_std"
            self.writer.line("offset = 0")
            for local in node.locals:
                self.at(local.position)
                if isinstance(local, ast.Variable):
                    self.statement(local)
                elif isinstance(local, ast.Instance):
                    raise P4Error(local.position, "objects in a parser are outside the subset; use them in a control")
            self.write_states(node)


def blocks_of(main: ast.Instance) -> dict[str, t.Callable]:
    """Return block -> the parser or control that ``V1Switch(...) main`` has there."""
    kinds = [argument.value.type for argument in main.arguments if argument.value is not None]
    return dict(zip(BLOCKS, kinds, strict=True))


def compile_program(globals_: list[ast.Node], main: ast.Instance, errors: dict[str, int]) -> Compiled:
    """Compile a checked program for v1model.

    Parameters
    ----------
    globals_ : list of Node
        The declarations of the source.
    main : Instance
        Its ``V1Switch(...) main``.
    errors : dict
        Member of ``error`` -> its number.
    """
    generator = Generator(errors)
    for node in globals_:
        if isinstance(node, ast.Instance) and isinstance(node.symbol.type, t.Extern):
            kind, path = node.symbol.type, node.shown or node.name
            given = [generator.constant(argument.value) for argument in node.arguments if argument.value is not None]
            generator._global_objects[node.symbol] = generator._object_of(node, kind, path.lstrip("."), given)
    blocks = blocks_of(main)
    _, headers, meta, standard = [one.symbol.type for one in blocks["parser"].node.parameters]
    for kind in (headers, meta, standard):
        if not isinstance(kind, t.Composite) or kind.kind != "struct":
            raise P4Error(main.position, f"the headers and metadata of the switch are structs, and {kind} is none")
        generator.use(kind)
    generator.write_parser(blocks["parser"])
    functions = {"parser": "parser"}
    for name in BLOCKS[1:]:
        functions[name] = generator.write_block(blocks[name])
    empty = {name for name in BLOCKS[1:] if not blocks[name].node.body.statements and not blocks[name].node.locals}
    return _assemble(generator, functions, empty, [class_name(kind) for kind in (headers, meta, standard)])


def _assemble(generator: Generator, functions: dict[str, str], empty: set[str], classes: list[str]) -> Compiled:
    """Join classes and functions to one text."""
    writer = Writer()
    structs = {}
    for kind in generator.composites:
        write_class(writer, kind)
        if kind.kind == "header" and not has_varbit(kind):
            structs[f"STRUCT_{kind.name}"] = struct.Struct(struct_format(kind))
    with writer.block("def build(state):"):
        for text in generator.bindings:
            writer.line(text)
        for function in generator.functions:
            for text, position in zip(function.lines, function.positions, strict=False):
                writer.position = position
                writer.line(text)
        pairs = ", ".join(f"{name}={function}" for name, function in functions.items())
        writer.line(f"return dict({pairs})")
    return Compiled(writer.text(), writer.positions, generator.layout, structs, empty, *classes)
