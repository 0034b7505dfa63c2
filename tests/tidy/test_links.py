"""Relative links in the pages lead to files that exist, and to headings that these have."""

from __future__ import annotations

import pathlib
import re

import pytest
from sources import ROOT, all_files, files

LINK = re.compile(r"!?\[[^\]\n]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
DEFINITION = re.compile(r"^\[[^\]\n]+\]:\s+<?(\S+?)>?$", re.MULTILINE)
ABSOLUTE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def without_code(text: str) -> str:
    """Return markdown without its code: fenced, indented after an empty line, and inline."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(?:(?<=\n\n)|\A)(?:(?: {4}|\t)[^\n]*\n?)+", "", text)
    return re.sub(r"(`+).+?\1", "", text)


def targets(text: str) -> list[str]:
    """Return what the links of a page point to, web addresses left out."""
    prose = without_code(text)
    return [target for target in LINK.findall(prose) + DEFINITION.findall(prose) if not ABSOLUTE.match(target)]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    fenced = re.sub(r"^(`{3,}|~{3,}).*?^\1[`~]*\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", fenced, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        name, count = anchor, 0
        while name in found:
            count += 1
            name = f"{anchor}-{count}"
        found.add(name)
    return found


def problems(page: pathlib.Path, pages: dict[pathlib.Path, str], existing: set[pathlib.Path]) -> list[str]:
    """Say which links of a page lead nowhere.

    Parameters
    ----------
    page : pathlib.Path
        The page, relative to the root.
    pages : dict
        Path -> text of every page.
    existing : set of pathlib.Path
        Every file and folder of the project, relative to the root.
    """
    wrong = []
    for target in targets(pages[page]):
        name, _, anchor = target.partition("#")
        parts: list[str] = []
        for part in pathlib.PurePosixPath(page.parent / name if name else page).parts:
            if part == ".." and parts:
                parts.pop()
            elif part != ".":
                parts.append(part)
        path = pathlib.Path(*parts)
        if path not in existing:
            wrong.append(f"{page}: {target}: there is no {path}")
        elif anchor and path in pages and anchor not in anchors(pages[path]):
            wrong.append(f"{page}: {target}: {path} has no heading #{anchor}")
    return wrong


def test_every_relative_link_leads_somewhere() -> None:
    known = set(all_files())
    known |= {folder for path in known for folder in path.parents}
    pages = {path: (ROOT / path).read_text() for path in files(suffixes={".md"})}
    wrong = [problem for page in pages for problem in problems(page, pages, known)]
    assert pages
    assert not wrong, "\n".join(wrong)


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    pages = {path: (ROOT / path).read_text() for path in files(suffixes={".md"})}
    reached: set[pathlib.Path] = set()
    ahead = [pathlib.Path("README.md")]
    while ahead:
        page = ahead.pop()
        if page in reached or page not in pages:
            continue
        reached.add(page)
        for target in targets(pages[page]):
            name = target.partition("#")[0]
            if name:
                resolved = (ROOT / page.parent / name).resolve()
                if resolved.is_relative_to(ROOT):
                    ahead.append(resolved.relative_to(ROOT))
    lost = [str(page) for page in pages if page.parts[0] == "docs" and page not in reached]
    assert not lost, f"no link leads from README.md to {lost}"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing.md", "there is no docs/missing.md"),
        ("../missing.md#x", "there is no missing.md"),
        ("b.md#nowhere", "docs/b.md has no heading #nowhere"),
        ("#nowhere", "docs/a.md has no heading #nowhere"),
    ],
)
def test_a_broken_link_is_found(target: str, message: str) -> None:
    a, b = pathlib.Path("docs/a.md"), pathlib.Path("docs/b.md")
    pages = {a: f"# A\n\nsee [it]({target})\n", b: "# B\n"}
    (found,) = problems(a, pages, {a, b, pathlib.Path("docs"), pathlib.Path()})
    assert message in found


def test_good_links_and_code_pass() -> None:
    a, b = pathlib.Path("docs/a.md"), pathlib.Path("README.md")
    text = (
        "# A title, with `code` (and more)\n\n[up](../README.md) [here](#a-title-with-code-and-more) [folder](..)\n"
        "[web](https://example.org/x) [both](../README.md#b-b)\n\n    [indented](missing.md)\n\n"
        "```\n[fenced](missing.md)\n```\n\n`dsts[j](missing.md)`\n"
    )
    pages = {a: text, b: "# B b\n"}
    assert problems(a, pages, {a, b, pathlib.Path("docs"), pathlib.Path()}) == []
