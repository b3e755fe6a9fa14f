"""What the front pages name exists: tests, scenarios, files, verbs, flags, targets.

    make test-quickstart
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "api/vectors/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/*.md")),
    ROOT / "connectors" / "python" / "README.md",
]
BINARY = ROOT / "build" / "headrace"
HOME = (
    "api", "agent", "bench", "cmd", "connectors", "examples",
    "flashckpt", "internal", "master", "shardsvc", "sources",
)


@lru_cache
def files_of_tests() -> list[Path]:
    """All files of Go and Python tests. Meanwhile other suites may make folders in the tree, and remove them."""
    there = [Path(top) / name for folder in HOME for top, _, names in os.walk(ROOT / folder) for name in names]
    # check_*.py are suites that have a target of their own in the Makefile.
    return [path for path in there if re.fullmatch(r".*_test\.go|(test|check)_.*\.py", path.name)]


def names_of_tests() -> set[str]:
    """Names of all tests, fuzz targets and scenario files of the tree."""
    names: set[str] = set()
    for path in files_of_tests():
        pattern = r"^func ((?:Test|Fuzz)\w+)\(" if path.suffix == ".go" else r"^def (test_\w+)\("
        names.update(re.findall(pattern, path.read_text(), re.MULTILINE))
    for core in ("shardsvc", "agent/hold"):
        scripts = ROOT / core / "testdata" / "scenarios"
        names.update(p.relative_to(scripts).as_posix() for p in scripts.glob("*/*.txt"))
    return names


def test_each_test_that_a_page_names_exists() -> None:
    there = names_of_tests()
    files = {path.name for path in files_of_tests() if path.name.startswith("test_")}
    for page in PAGES:
        text = page.read_text()
        named = set(re.findall(r"`((?:Test|Fuzz)[A-Z]\w+|test_\w+(?:\.py)?|\w+(?:/\w+)?\.txt)`", text))
        assert named - there - files == set(), page
        assert page.name != "GUARANTEES.md" or len(named) > 30
        scenarios = [
            s for some in re.findall(r"scenarios? ((?:`[^`]+`(?:, )?)+)", text) for s in re.findall(r"`([^`]+)`", some)
        ]
        assert [s for s in scenarios if not re.match(r"(Test|test_)", s) and s not in there] == [], page


def test_each_guarantee_has_a_claim_limits_and_tests() -> None:
    page = (ROOT / "docs" / "GUARANTEES.md").read_text()
    text, tables = page.split("\n## Tests\n")
    claims = re.split(r"^## (?=\d+\. )", text.split("\n## Going on after a death\n")[0], flags=re.MULTILINE)[1:]
    assert len(claims) == 10
    rows = {line.split(" | ")[0].strip("| "): line for line in tables.splitlines() if line.startswith("| ")}
    there = names_of_tests()
    for claim in claims:
        title = claim.splitlines()[0]
        assert re.search(r"^\*\*.+\*\*", claim, re.MULTILINE), f"{title}: no claim in bold"
        assert re.search(r"^Limits:\n\n- ", claim, re.MULTILINE), f"{title}: no list of limits"
        assert re.search(r"`(Test|test_)\w+`", rows[title]), f"{title}: no test"
        scenarios = re.findall(r"`([^`]+)`", rows[title].split(" | ")[2])
        assert [s for s in scenarios if s not in there] == [], title
    deaths = [line.split(" | ")[0].strip("| ") for line in text.split("\n## Going on after a death\n")[1].splitlines()]
    for death in [d for d in deaths if d and not d.startswith("-") and d != "dies"]:
        assert re.search(r"`(Test|test_)\w+`", rows[death]), death


def test_each_file_that_a_page_links_to_exists() -> None:
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())]
    missing = [f"{page.relative_to(ROOT)} -> {to}" for page, to in links if not (page.parent / to).exists()]
    assert missing == []


def anchor(heading: str) -> str:
    """The place of a heading, as GitHub names it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def test_each_heading_that_a_page_links_to_exists() -> None:
    there: dict[Path, set[str]] = {}
    missing = []
    for page in PAGES:
        for file, place in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            target = (page.parent / file).resolve() if file else page
            if target not in there:
                text = re.sub(r"```.*?```", "", target.read_text(), flags=re.DOTALL)
                there[target] = {anchor(h) for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
            if place not in there[target]:
                missing.append(f"{page.relative_to(ROOT)} -> {file}#{place}")
    assert missing == []


def test_the_file_map_names_each_folder() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    folders = [name for name in HOME if name not in ("connectors", "flashckpt", "internal", "cmd")]
    for parent in ("connectors", "flashckpt", "internal", "cmd"):
        folders += [f"{parent}/{p.name}" for p in (ROOT / parent).iterdir() if p.is_dir()]
    missing = [f for f in folders if f"| {f}/ |" not in page]
    assert missing == []


def test_each_metric_that_the_command_line_page_names_is_exported() -> None:
    page = (ROOT / "docs" / "CLI.md").read_text()
    named = set(re.findall(r"`headrace_(\w+)", page))
    code = "".join((ROOT / p).read_text() for p in ("shardsvc/serve/metrics.go", "agent/feed/metrics.go"))
    exported = set(re.findall(r'desc\("(\w+)"|"headrace_(\w+)"', code))
    assert named == {a or b for a, b in exported}


def commands(program: str) -> list[tuple[Path, str]]:
    """The commands in the pages: lines of indented blocks, and code in the text that is more than a
    verb."""
    found = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        lines = re.findall(rf"^ {{4,}}(?:\S+/)?{program} (.*)", text, re.MULTILINE)
        inline = re.findall(rf"`{program} ([^`]* [^`]*)`", text)
        found += [(page.relative_to(ROOT), line.split(" #")[0].strip()) for line in lines + inline]
    return found


@lru_cache
def help_of(*verb: str) -> str:
    return subprocess.run([BINARY, *verb, "--help"], capture_output=True, text=True, check=True, timeout=300).stdout


def test_each_verb_and_flag_that_a_page_shows_is_taken() -> None:
    verbs = set(re.findall(r"^  ([a-z]+)  ", help_of(), re.MULTILINE))
    nested = {v: set(re.findall(r"^  ([a-z]+)  ", help_of(v), re.MULTILINE)) for v in ("dataset", "ckpt", "deadletter")}
    shown, wrong = 0, []
    for page, line in commands("headrace"):
        words = re.split(r" -- | \| | &", line + " ")[0].split()
        if not re.fullmatch(r"[a-z]+", words[0]):
            continue  # VERB, or the text of an error
        verb = tuple(words[:2]) if words[0] in nested and words[1:2] and words[1] in nested[words[0]] else (words[0],)
        shown += 1
        if verb[0] not in verbs | nested["dataset"]:
            wrong.append(f"{page}: headrace {line}: there is no verb {verb[0]}")
            continue
        flags = [w.split("=")[0].strip("[]") for w in words if re.match(r"\[?--?[a-z]", w)]
        wrong += [
            f"{page}: headrace {line}: no flag {f}"
            for f in flags
            if not re.search(rf"(^|[ ,]){f}[ ,=\n]", help_of(*verb), re.MULTILINE)
        ]
    assert wrong == []
    assert shown > 15


def test_each_target_that_a_page_shows_is_made() -> None:
    text = (ROOT / "Makefile").read_text()
    made = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9 -]+)?:", text, re.MULTILINE))
    shown = {(page, line.split()[0]) for page, line in commands("make")}
    shown |= {(page, t) for page in PAGES for t in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert len(shown) > 10
    assert {(str(page), target) for page, target in shown if target not in made} == set()


def test_each_suite_of_pushed_records_is_in_the_long_tests() -> None:
    text = (ROOT / "Makefile").read_text()
    needs: dict[str, list[str]] = {}
    for names, after in re.findall(r"^([a-z0-9-]+(?: [a-z0-9-]+)*):(?!=)([^#\n]*)", text, re.MULTILINE):
        for name in names.split():
            needs.setdefault(name, []).extend(after.split())
    lanes = re.search(r"^LANES := (.*)$", text, re.MULTILINE)
    assert lanes is not None
    needs["test"] += lanes[1].replace('"', " ").split()
    assert "$(FLINK_TEST) -pl $(FLINK_THIN) -am test " in text, "-am also runs the tests of the modules that it needs"
    needs["test-flink"].append("test-java")
    run, found = ["test-long"], {"test-long"}
    while run:
        more = set(needs.get(run.pop(), ())) - found
        run += more
        found |= more
    pages = "".join((ROOT / "docs" / page).read_text() for page in ("LANDING.md", "flink.md", "spark.md"))
    named = set(re.findall(r"`make (test-[a-z0-9-]+)`", pages))
    assert len(named) > 7
    assert named - found == set()


FLINK = ROOT / "connectors" / "flink" / "src" / "main" / "java" / "io" / "github" / "headrace" / "flink"
# Options of Flink itself that the factory of tables takes.
FLINK_OWN = {"FactoryUtil.FORMAT": ("format", None), "FactoryUtil.SINK_PARALLELISM": ("sink.parallelism", None)}


def flink_options() -> dict[str, tuple[str | None, bool]]:
    """Each option that the factory of tables takes: its default, and whether it is required."""
    declared = {**FLINK_OWN}
    options = (FLINK / "table" / "HeadraceOptions.java").read_text()
    for name, key, more in re.findall(r'(\w+) = ConfigOptions\s*\.key\("([^"]+)"\)(.*?);', options, re.DOTALL):
        default = re.search(r"\.defaultValue\((.*?)\)\s*\.withDescription", more, re.DOTALL)
        declared[f"HeadraceOptions.{name}"] = (key, default[1] if default else None)
    factory = (FLINK / "table" / "HeadraceTableFactory.java").read_text()
    taken: dict[str, tuple[str | None, bool]] = {}
    for kind in ("required", "optional"):
        body = re.search(rf"{kind}Options\(\) \{{\s*return Set\.of\((.*?)\);", factory, re.DOTALL)
        assert body is not None
        for name in re.split(r",\s*", body[1]):
            key, default = declared[name]
            taken[key] = (default, kind == "required")
    assert set(declared) == set(re.findall(r"\b(?:HeadraceOptions|FactoryUtil)\.[A-Z_]+\b", factory))
    return taken


def test_the_options_of_flink_tables_are_those_that_the_page_names() -> None:
    page, taken = (ROOT / "docs" / "flink.md").read_text(), flink_options()
    table = page.split("| option | default | what |\n|---|---|---|\n")[1].split("\n\n")[0]
    told: dict[str, str] = {}
    for row in table.splitlines():
        names, default, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:4])
        told.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), default))
    assert set(told) == set(taken)
    for name, (default, required) in taken.items():
        assert told[name].startswith("required") >= required, name
        if default is not None:
            value = re.sub(r'^Duration\.ofSeconds\((\d+)\)$', r"\1 s", default.strip('"'))
            value = value.rsplit(".", 1)[-1].lower().replace("_", "-") if value[:1].isupper() else value
            assert told[name] == f"`{value}`", name
    # The options that the page's SQL sets, and those that its text quotes.
    statements = "".join(re.findall(r"```sql\n(.*?)```", page, re.DOTALL))
    set_ = set(re.findall(r"^ *'([a-z.-]+)' = ", statements, re.MULTILINE))
    assert {"connector", *(name for name, (_, required) in taken.items() if required)} <= set_
    everywhere = set_ | set(re.findall(r"`'([a-z.-]+)'(?: = [^`]*)?`", page))
    everywhere |= set(re.findall(r"`'([a-z.-]+)' = ", (ROOT / "docs" / "LANDING.md").read_text()))
    assert len(everywhere) > 5
    assert everywhere - {"connector"} - set(taken) == set()


def test_the_methods_of_flink_sinks_are_those_that_the_pages_name() -> None:
    builder = (FLINK / "HeadraceSinkBuilder.java").read_text()
    made = set(re.findall(r"public HeadraceSinkBuilder<\w+> (set\w+)\(", builder))
    page = (ROOT / "docs" / "flink.md").read_text()
    named = set(re.findall(r"\b(set[A-Z]\w+)\b", page + (ROOT / "docs" / "LANDING.md").read_text()))
    assert len(named) > 5
    assert named - made == set()
