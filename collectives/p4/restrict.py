"""What BMv2 refuses of a program that is right P4: rules about where in the pipeline something may stand.

Used after the checker, for v1model alone. Imports the tree and the types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collectives.p4 import ast
from collectives.p4 import types as t
from collectives.p4.errors import P4Error
from collectives.p4.generate_base import walk

_VERIFY = ("verify_checksum", "verify_checksum_with_payload")
_UPDATE = ("update_checksum", "update_checksum_with_payload")
_ANYWHERE = ("log_msg", "assert", "assume")


def restrict(declarations: list[ast.Node], blocks: dict[str, t.Callable]) -> None:
    """Check the blocks of the switch.

    Parameters
    ----------
    declarations : list of Node
        The source, checked.
    blocks : dict
        Name of a block (parser, verify, ingress, egress, compute, deparser) -> its control or parser.

    Raises
    ------
    P4Error
        Where BMv2's compiler would refuse the program.
    """
    _headers_only(declarations, blocks["parser"])
    _only_calls(blocks["verify"], _VERIFY, "verify checksums")
    _only_calls(blocks["compute"], _UPDATE, "compute checksums")
    _only_emits(blocks["deparser"])
    allowed = {id(blocks["verify"].node), id(blocks["compute"].node)}
    for node in declarations:
        if isinstance(node, ast.Control) and node.body is not None and id(node) not in allowed:
            _no_checksums(node)


def _headers_only(declarations: list[ast.Node], parser: t.Callable) -> None:
    """See that the struct of headers holds nothing else."""
    kind = parser.node.parameters[1].symbol.type
    written = [node for node in declarations if isinstance(node, ast.Fields) and node.symbol.type is kind]
    for field in written[0].fields if written else []:
        inner = kind.fields[field.name]
        if not _is_header(inner):
            raise P4Error(
                field.position,
                f"{kind} is the struct of headers, and {field.name} is {inner}; move it to the metadata",
            )


def _is_header(kind: t.Type) -> bool:
    if isinstance(kind, t.Composite):
        return kind.kind == "header" or all(_is_header(field) for field in kind.fields.values())
    return isinstance(kind, t.Stack)


def _statements(node: Any) -> Iterator[Any]:
    """Yield the statements of a block and of the blocks in it."""
    for statement in node.statements:
        if isinstance(statement, ast.Block):
            yield from _statements(statement)
        elif not isinstance(statement, ast.Empty):
            yield statement


def _called(statement: Any, kind: str) -> str:
    """Return the name of what a statement calls, if it is a call of this kind; else an empty text."""
    call = statement.call if isinstance(statement, ast.CallStatement) else None
    return str(call.target.name) if isinstance(call, ast.Call) and call.target.kind == kind else ""


def _only_calls(control: t.Callable, names: tuple[str, ...], task: str) -> None:
    for statement in _statements(control.node.body):
        if _called(statement, "native") not in (*names, *_ANYWHERE):
            raise P4Error(
                statement.position,
                f"a control to {task} only calls {' and '.join(names)} on BMv2; "
                "put conditions into their first argument, the rest into the ingress or egress",
            )


def _only_emits(control: t.Callable) -> None:
    for statement in _statements(control.node.body):
        if _called(statement, "extern") != "emit" and _called(statement, "native") not in _ANYWHERE:
            raise P4Error(
                statement.position,
                "a deparser only emits on BMv2; make headers valid or invalid in the ingress or egress",
            )


def _no_checksums(control: ast.Control) -> None:
    for inner in walk(control):
        if isinstance(inner, ast.Call) and inner.target is not None and inner.target.name in _VERIFY + _UPDATE:
            raise P4Error(
                inner.position,
                f"{inner.target.name} belongs into the switch's control for checksums, on BMv2; move it there",
            )
