"""What docs/BENCHMARKS.md says of a figure with a goal: met, missed, or not known.

A goal is in the meaning of a figure: "goal 5" is the least value, and "goal at most 0.05" the greatest.
A median is compared with it. An interval is missed if it is wholly beyond the goal, met if it is
wholly within, and if the goal is inside the interval the run cannot tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable

GOAL = re.compile(r"goal (at most )?([\d.,]*\d)(: \*\*missed\*\*|: met|: this run cannot tell)?")
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<value>[^|]*) \| (?P<meaning>.*) \|$")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def verdict(goal: re.Match[str], values: list[float], interval: bool) -> str:
    most, limit = bool(goal[1]), float(goal[2].replace(",", ""))
    reached: Callable[[float], bool] = (lambda v: v <= limit) if most else (lambda v: v >= limit)
    held = [reached(v) for v in (values[:2] if interval else values[:1])]
    if all(held):
        return "met"
    return "this run cannot tell" if any(held) else "**missed**"


def judged(text: str) -> str:
    """The rows of a section, with a verdict after each goal. A second call changes nothing."""

    def row(line: str) -> str:
        m = ROW.match(line)
        goal = GOAL.search(m["meaning"]) if m else None
        # A comma groups digits, and a comma with a space separates values.
        values = [float(v.replace(",", "")) for v in NUMBER.findall(m["value"])] if m else []
        if m is None or goal is None or not values:
            return line
        says = f"goal {goal[1] or ''}{goal[2]}: {verdict(goal, values, m['name'].endswith('_interval'))}"
        return line[: m.start("meaning")] + GOAL.sub(lambda _: says, m["meaning"], count=1) + " |"

    return "\n".join(row(line) for line in text.split("\n"))


RUN = re.compile(r"^`[^`]+`,.*? (?P<day>\d{4}-\d\d-\d\d) \S+ UTC, commit (?P<commit>\w+)", re.M)
HEAD = re.compile(r"^## (?P<title>[^\n]*?)(?: \(another run: [^)]*\))?\n\n(?:Another run: [^\n]*\n\n)?", re.M)


def titled(sections: list[str]) -> list[str]:
    """The sections. Those of another commit than the newest run's say so below their titles. The titles
    stay as they are, because other pages link to them."""
    runs = [m for s in sections if (m := RUN.search(s))]
    newest = max((m["day"] for m in runs), default="")
    commits = [m["commit"] for m in runs if m["day"] == newest]
    newest_commit = max(commits, key=commits.count, default="")

    def one(text: str) -> str:
        run = RUN.search(text)
        other = run is not None and run["commit"] != newest_commit
        note = f"Another run: {run['day']}, commit {run['commit']}.\n\n" if run and other else ""
        return HEAD.sub(lambda m: f"## {m['title']}\n\n{note}", text, count=1)

    return [one(s) for s in sections]
