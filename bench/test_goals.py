"""A page of figures says of each goal whether it was reached."""

from __future__ import annotations

import re

import pytest
from bench.goals import judged, titled
from bench.run import PAGE
from bench.tables import BENCHES


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("| `vs_tuned` | 1.45, 1.41, 2.03 | over tuned's; goal 2 |", "goal 2: **missed** |"),
        ("| `vs_tuned` | 2.1, 1.41, 2.3 | over tuned's; goal 2 |", "goal 2: met |"),
        ("| `batched` | 721,050 | pairs/s; goal 300,000 |", "goal 300,000: met |"),
        ("| `cost` | 0.0663 | a share; goal at most 0.02 |", "goal at most 0.02: **missed** |"),
        ("| `cost_interval` | 0.0418, 0.1243 | with 95 %; goal at most 0.02 |", "goal at most 0.02: **missed** |"),
        ("| `cost_interval` | -0.0172, 0.0101 | with 95 %; goal at most 0.02 |", "goal at most 0.02: met |"),
        ("| `cost_interval` | -0.0172, 0.0301 | with 95 %; goal at most 0.02 |", ": this run cannot tell |"),
        ("| `cpus` | 2 |  |", "| `cpus` | 2 |  |"),
    ],
)
def test_a_goal_is_met_missed_or_not_known(row: str, says: str) -> None:
    once = judged(row)
    assert once.endswith(says)
    assert judged(once) == once


def test_a_section_of_another_run_says_so_below_its_title() -> None:
    def section(title: str, day: str, commit: str) -> str:
        return f"## {title}\n\n`make bench-x`, {day} 10:00 UTC, commit {commit}, on a machine.\n"

    sections = [section("A", "2026-11-21", "aaa"), section("B", "2026-11-22", "bbb"), section("C", "2026-11-22", "bbb")]
    for _ in range(2):
        sections = titled(sections)
        assert [s.split("\n")[0] for s in sections] == ["## A", "## B", "## C"]
        assert [s.split("\n")[2][:12] for s in sections] == ["Another run:", "`make bench-", "`make bench-"]
        assert "\n\nAnother run: 2026-11-21, commit aaa.\n\n" in sections[0]


def test_beside_each_ratio_of_speeds_stands_the_cpu_per_record() -> None:
    """A rival with one thread is slower than several cores, but need not cost more CPU."""
    ratios = 0
    for bench in BENCHES.values():
        for key, meaning in bench.meanings.items():
            head, vs, rival = key.partition("vs_")
            if not vs or "CPU" in meaning:
                continue
            ratios += 1
            assert f"{head}all_cpu_of_{rival}" in bench.meanings, key
    assert ratios >= 12


def test_the_page_judges_each_of_its_goals_and_names_the_runs() -> None:
    """It checks a section that was added by hand too. `python bench/run.py --only none` repairs the page."""
    sections = re.split(r"^(?=## )", PAGE.read_text(), flags=re.M)[1:]
    assert len(sections) > 5
    assert [judged(s) for s in sections] == sections
    assert titled(sections) == sections
