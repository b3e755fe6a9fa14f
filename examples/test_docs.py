"""What the front pages name is there: tests, scenarios, files.

    make test-quickstart
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ("api", "agent", "bench", "cmd", "connectors", "examples", "internal", "master", "shardsvc", "sources")


def names_of_tests() -> set[str]:
    """Names of all tests, fuzz targets and scenario files of the tree."""
    names: set[str] = set()
    for folder in HOME:
        for path in (ROOT / folder).rglob("*_test.go"):
            names.update(re.findall(r"^func ((?:Test|Fuzz)\w+)\(", path.read_text(), re.MULTILINE))
        for path in (ROOT / folder).rglob("test_*.py"):
            names.update(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    names.update(p.name for p in (ROOT / "shardsvc" / "testdata" / "scenarios").glob("*.txt"))
    return names


def test_each_test_that_the_guarantees_name_exists() -> None:
    page = (ROOT / "docs" / "GUARANTEES.md").read_text()
    named = set(re.findall(r"`((?:Test|Fuzz)[A-Z]\w+|test_\w+|\w+\.txt)`", page))
    assert len(named) > 30
    assert named - names_of_tests() == set()


def test_each_file_that_a_page_links_to_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "examples" / "clicks" / "README.md"]
    links = [(page, target) for page in pages for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    missing = [f"{page.relative_to(ROOT)} -> {to}" for page, to in links if not (page.parent / to).exists()]
    assert missing == []


def test_the_file_map_names_each_folder() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    folders = [name for name in HOME if name not in ("connectors", "internal", "cmd")]
    for parent in ("connectors", "internal", "cmd"):
        folders += [f"{parent}/{p.name}" for p in (ROOT / parent).iterdir() if p.is_dir()]
    missing = [f for f in folders if f"| {f}/ |" not in page]
    assert missing == []


def test_each_metric_that_the_command_line_page_names_is_exported() -> None:
    page = (ROOT / "docs" / "CLI.md").read_text()
    named = set(re.findall(r"`headrace_(\w+)", page))
    code = "".join((ROOT / p).read_text() for p in ("shardsvc/serve/metrics.go", "agent/feed/metrics.go"))
    exported = set(re.findall(r'desc\("(\w+)"|"headrace_(\w+)"', code))
    assert named == {a or b for a, b in exported}
