"""A P4 source, read, checked and compiled: :func:`load` and :func:`check`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.check import Checker
from collectives.p4.errors import P4Error, P4RuntimeError, Position
from collectives.p4.generate import Compiled, blocks_of, compile_program
from collectives.p4.parse import parse
from collectives.p4.preprocess import Preprocessor
from collectives.p4.restrict import restrict
from collectives.p4.stacks import HeaderStack

# Package at the end of a source -> architecture.
ARCHITECTURES = {"V1Switch": "v1model", "Switch": "tna"}
PYTHON_NAME = "<compiled P4>"
_RECURSION = 10_000


class Program:
    """A program for v1model, ready to run in any number of switches. Made by :func:`load`.

    Attributes
    ----------
    path : str
        The source.
    files : list of str
        Every file that was read, built-in ones in angle brackets.
    architecture : str
        ``v1model``.
    python : str
        What the program was compiled to; worth a look when one asks why it is slow.
    """

    def __init__(self, path: str, files: list[str], compiled: Compiled) -> None:
        self.path = path
        self.files = files
        self.architecture = "v1model"
        self.compiled = compiled
        self.python = compiled.text
        self.namespace: dict[str, Any] = {
            "NEW": object.__new__,
            "HeaderStack": HeaderStack,
            "P4RuntimeError": P4RuntimeError,
            "Position": Position,
            **compiled.structs,
        }
        exec(compile(self.python, PYTHON_NAME, "exec"), self.namespace)

    def __repr__(self) -> str:
        layout = self.compiled.layout
        return f"<P4 program {self.path}: {len(layout.tables)} tables, {len(layout.registers)} registers>"

    def where(self, error: BaseException) -> Position:
        """Return the place in the P4 source that an exception of the compiled program comes from."""
        line = 0
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == PYTHON_NAME:
                line = trace.tb_lineno
            trace = trace.tb_next
        return self.compiled.positions[line - 1] if line else Position(self.path, 1, 1)


@contextlib.contextmanager
def _deep(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let long expressions be walked down: a sum of 256 lanes is 256 nodes deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    except RecursionError as error:
        message = "an expression is nested too deeply to be read; cut it into several statements"
        raise P4Error(Position(os.fspath(path), 1, 1), message) from error
    finally:
        sys.setrecursionlimit(before)


def _read(
    path: str | os.PathLike[str], defines: Mapping[str, object] | None, include: Sequence[str | os.PathLike[str]]
) -> tuple[list[str], list[ast.Node], Checker, ast.Instance]:
    """Read and check a source; return its files, declarations, the checker and ``main``."""
    name = os.fspath(path)
    preprocessor = Preprocessor(defines or {}, include)
    declarations = parse(preprocessor.run(name), name)
    architecture = "tna" if "<tna.p4>" in preprocessor.files else "v1model"
    checker = Checker(architecture)
    checker.check(declarations)
    symbol = checker.globals.names.get("main")
    if symbol is None or not isinstance(symbol.node, ast.Instance) or symbol.type.name not in ARCHITECTURES:
        wanted = " or ".join(f"{package}(...) main;" for package in ARCHITECTURES)
        raise P4Error(Position(name, 1, 1), f"the source makes no switch; end it with {wanted}")
    return preprocessor.files, declarations, checker, symbol.node


def load(
    path: str | os.PathLike[str],
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
) -> Program:
    """Read, check and compile a P4_16 program for v1model.

    Parameters
    ----------
    path : path
        The source, which ends with ``V1Switch(...) main;``.
    defines : mapping of str to object
        Macros that are defined before the first line, as ``-D`` does: ``{"LANES": 64}``.
    include : sequence of path
        Folders in which to look for included files, as ``-I`` does.

    Raises
    ------
    P4Error
        If the program is wrong or outside the subset (docs/p4-interpreter.md); the text begins with file:line:column.
    OSError
        If the source cannot be read.
    """
    with _deep(path):
        return _load(path, defines, include)


def _load(
    path: str | os.PathLike[str], defines: Mapping[str, object] | None, include: Sequence[str | os.PathLike[str]]
) -> Program:
    files, declarations, checker, main = _read(path, defines, include)
    if ARCHITECTURES[main.symbol.type.name] != "v1model":
        raise P4Error(
            main.position,
            f"{main.symbol.type.name} is not v1model's switch, and only v1model runs here; "
            "use check() to see whether this program is right",
        )
    restrict(declarations, blocks_of(main))
    return Program(os.fspath(path), files, compile_program(declarations, main, checker.errors))


def check(
    path: str | os.PathLike[str],
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """Read and check a P4_16 program, for v1model or TNA, without compiling it.

    Parameters are those of :func:`load`.

    Returns
    -------
    str
        The architecture: ``v1model`` or ``tna``.

    Raises
    ------
    P4Error
        If the program is wrong or outside the subset.
    OSError
        If the source cannot be read.
    """
    with _deep(path):
        _, _, _, main = _read(path, defines, include)
    assert isinstance(main.symbol.type, t.Callable)
    return ARCHITECTURES[main.symbol.type.name]


__all__ = ["Program", "check", "load"]
