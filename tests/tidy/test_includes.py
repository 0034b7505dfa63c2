"""The include arrows of docs/ARCHITECTURE.md: nothing includes upward, and torch and Python stay in bindings/."""

from __future__ import annotations

import pathlib
import re

import pytest
from sources import CXX_SUFFIXES, ROOT, files

# A layer -> the layers it may include, besides itself.
_MIDDLE = {"transport", "kernels", "wire", "types", "base"}
_FEATURES = {"compression", "embedding", "innetwork"}
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "types": {"base"},
    "wire": {"types", "base"},
    "kernels": {"types", "base"},
    "transport": {"wire", "types", "base"},
    "compression": _MIDDLE,
    "embedding": _MIDDLE,
    "innetwork": _MIDDLE,
    "algorithms": _FEATURES | _MIDDLE,
    "engine": {"algorithms"} | _FEATURES | _MIDDLE,
    "switch": {"wire", "kernels", "base"},
    "cuda": {"kernels", "types", "base"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
# Headers of torch, pybind11 and Python, however they are spelt.
FOREIGN = re.compile(r"^(torch|ATen|c10|caffe2|pybind11)/|^(Python|structmember|numpy/.*)\.h$")


def layer_violations(path: pathlib.Path, text: str) -> list[str]:
    """Say what is wrong with the includes of one file, given by its path from the root."""
    wrong = []
    in_core = path.parts[0] == "csrc"
    for kind, name in INCLUDE.findall(text):
        if in_core and FOREIGN.match(name):
            wrong.append(f"{path} includes <{name}>: torch, pybind11 and Python headers belong to bindings/")
        if kind != '"':
            continue
        target = name.split("/")[0]
        if "/" not in name or ".." in name or target not in MAY_INCLUDE | {"bindings": set()}:
            if in_core or path.parts[0] == "bindings":
                wrong.append(f'{path} includes "{name}": write it from the root of csrc, "<layer>/<file>.h"')
        elif in_core and target != path.parts[1] and target not in MAY_INCLUDE[path.parts[1]]:
            wrong.append(f'{path} includes "{name}": {path.parts[1]} may not include {target}')
    return wrong


def test_nothing_includes_upward() -> None:
    wrong = []
    for path in files("csrc", "bindings", suffixes=CXX_SUFFIXES):
        wrong += layer_violations(path, (ROOT / path).read_text())
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_csrc_is_a_layer() -> None:
    folders = {path.parts[1] for path in files("csrc", suffixes=CXX_SUFFIXES)}
    assert folders <= MAY_INCLUDE.keys(), "a new folder under csrc/ needs its row in MAY_INCLUDE"


def test_the_arrows_have_no_cycle() -> None:
    reached: dict[str, set[str]] = {}

    def below(layer: str, above: tuple[str, ...]) -> set[str]:
        assert layer not in above, f"a cycle: {' -> '.join((*above, layer))}"
        if layer not in reached:
            lower = MAY_INCLUDE[layer]
            reached[layer] = lower.union(*(below(one, (*above, layer)) for one in lower))
        return reached[layer]

    for layer in MAY_INCLUDE:
        below(layer, ())


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("csrc/base/a.h", '#include "engine/request.h"', "base may not include engine"),
        ("csrc/kernels/a.cc", '#include "transport/node.h"', "kernels may not include transport"),
        ("csrc/engine/a.cc", "#include <torch/extension.h>", "belong to bindings/"),
        ("csrc/types/a.h", "# include <Python.h>", "belong to bindings/"),
        ("csrc/types/a.h", '#include "dtype.h"', "from the root of csrc"),
        ("csrc/types/a.h", '#include "../base/status.h"', "from the root of csrc"),
    ],
)
def test_a_wrong_include_is_found(path: str, line: str, message: str) -> None:
    (found,) = layer_violations(pathlib.Path(path), f"// text\n{line}\n")
    assert message in found


def test_a_right_include_passes() -> None:
    text = '#include "engine/request.h"\n#include "base/status.h"\n#include <vector>\n'
    assert layer_violations(pathlib.Path("csrc/engine/a.cc"), text) == []
    assert layer_violations(pathlib.Path("bindings/a.cc"), text + "#include <torch/extension.h>\n") == []
