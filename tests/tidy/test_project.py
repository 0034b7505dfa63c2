"""The project's pages agree with its files: commands, version, changelog, configuration."""

from __future__ import annotations

import re
import tomllib

from sources import CXX_SUFFIXES, ROOT, files

import collectives
from collectives import config


def make_targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_make_command_of_the_pages_exists() -> None:
    targets = make_targets()
    wrong = []
    for path in files(suffixes={".md"}):
        for target in re.findall(r"(?:^\s*|`)make ([a-z][a-z-]*)", (ROOT / path).read_text(), re.MULTILINE):
            if target not in targets:
                wrong.append(f"{path}: make {target}")
    assert not wrong, wrong


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    opening = "\n".join(lines[:25])
    assert "make demo" in opening
    assert "make test" in opening


def test_files_that_the_makefile_runs_exist() -> None:
    scripts = re.findall(r"\$\(PY\) ([a-z_/]+\.py)", (ROOT / "Makefile").read_text())
    missing = [script for script in scripts if not (ROOT / script).is_file()]
    assert scripts
    assert not missing, missing


def test_the_changelog_has_the_version_and_an_unreleased_section() -> None:
    sections = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    released = sections[1:]
    assert not released or released[0] == collectives.__version__


def test_there_is_one_version() -> None:
    from collectives import _core

    assert _core.library_info()["version"] == collectives.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert "version" not in project


def test_every_requirement_is_pinned() -> None:
    for path in files("requirements", suffixes={".txt"}):
        for line in (ROOT / path).read_text().splitlines():
            requirement = line.split("#")[0].strip()
            assert not requirement or re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", requirement), f"{path}: {line}"


def test_what_the_tests_need_is_installed_for_them() -> None:
    pinned = {
        line.partition("==")[0].lower()
        for path in files("requirements", suffixes={".txt"})
        for line in (ROOT / path).read_text().splitlines()
    }
    wrong = []
    for path in files("tests", suffixes={".py"}):
        for marks in re.findall(r"^@pytest\.mark\.needs\(([^)]*)\)", (ROOT / path).read_text(), re.MULTILINE):
            wrong += [f"{path}: {name}" for name in re.findall(r'"(\w+)"', marks) if name.lower() not in pinned]
    assert not wrong, f"skipped everywhere, since requirements/ lacks them: {wrong}"


def test_the_configuration_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == config.to_markdown(), "run `make docs`"


def test_every_variable_is_in_the_table() -> None:
    known = {variable.name for variable in config.VARIABLES}
    assert len(known) == len(config.VARIABLES)
    wrong = []
    for path in files("csrc", "bindings", "collectives", suffixes=CXX_SUFFIXES | {".py"}):
        for name in re.findall(r"""["'](COLLECTIVES_[A-Z0-9_]+)["']""", (ROOT / path).read_text()):
            if name not in known:
                wrong.append(f"{path}: {name}")
    assert not wrong, f"variables without a row in collectives/config.py: {wrong}"


def test_every_variable_of_the_table_is_read() -> None:
    texts = [(ROOT / path).read_text() for path in files("collectives", suffixes={".py"}) if path.name != "config.py"]
    constants = {name for name, value in vars(config).items() if isinstance(value, config.Variable)}
    unread = [name for name in sorted(constants) if not any(f"config.{name}.read(" in text for text in texts)]
    assert not unread, f"documented, but nothing reads them: {unread}"


def test_only_the_table_reads_the_environment() -> None:
    wrong = []
    for path in files("collectives", suffixes={".py"}):
        text = (ROOT / path).read_text()
        if path.name != "config.py" and re.search(r"(environ|getenv)[^\n]*COLLECTIVES_", text):
            wrong.append(str(path))
    assert not wrong, f"read these through collectives.config: {wrong}"
