"""``python -m collectives.p4 FILE``: read and check a P4 program, and say what it has or what is wrong with it."""

from __future__ import annotations

import argparse
import sys

from collectives import p4


def main(arguments: list[str] | None = None) -> int:
    """Check a program and print its objects; return 0, or 1 where it is wrong.

    Parameters
    ----------
    arguments : list of str
        Those of the command line, without the name of the program.
    """
    parser = argparse.ArgumentParser(prog="python -m collectives.p4", description=__doc__)
    parser.add_argument("file", help="the source, which ends with V1Switch(...) main; or Switch(...) main;")
    parser.add_argument(
        "-D", dest="defines", action="append", default=[], metavar="NAME[=VALUE]", help="define a macro"
    )
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="FOLDER", help="look here for files")
    parser.add_argument("--python", action="store_true", help="print what the program is compiled to")
    options = parser.parse_args(arguments)
    defines = dict(one.partition("=")[::2] if "=" in one else (one, "1") for one in options.defines)
    try:
        architecture = p4.check(options.file, defines, options.include)
        print(f"{options.file}: right, for {architecture}")
        if architecture == "v1model":
            _describe(p4.load(options.file, defines, options.include), options.python)
    except (p4.P4Error, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _describe(program: p4.Program, with_python: bool) -> None:
    """Print the objects of a program, and its Python text where that is asked for."""
    layout = program.compiled.layout
    for name, table in layout.tables.items():
        keys = ", ".join(f"{key.name}: {key.match}" for key in table.keys)
        print(f"  table {name} ({keys}), {table.size} entries")
        for action in table.actions:
            print(f"    {action.name}({', '.join(f'{kind} {parameter}' for parameter, kind in action.parameters)})")
    for name, register in layout.registers.items():
        print(f"  register {name}, {register.size} of {register.kind}")
    for name, counter in layout.counters.items():
        print(f"  counter {name}, {f'of table {counter.table}' if counter.size is None else counter.size}")
    if with_python:
        print(program.python)


if __name__ == "__main__":
    sys.exit(main())
