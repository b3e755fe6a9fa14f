"""`make need` lists everything that a machine lacks, and says what to do.

make test-quickstart
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def need(tmp_path: Path, programs: dict[str, str], *args: str) -> tuple[int, str]:
    """The status and output of `make need` on a machine that has only these programs."""
    for name, text in programs.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", ROOT / ".ci" / "need", "go", "python3", *args],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


LINUX = {"uname": "echo Linux", "go": "case $2 in GOVERSION) echo go1.26.1;; *) echo auto;; esac", "python3": "exit 0"}


def test_a_machine_that_has_all_is_told_nothing(tmp_path: Path) -> None:
    assert need(tmp_path, LINUX) == (0, "")


def test_what_only_some_tests_need_is_named_when_asked(tmp_path: Path) -> None:
    code, said = need(tmp_path, LINUX, "--all")
    assert code == 0
    for word in ("Java 17", "Maven", "git", "nothing is missing for make build"):
        assert word in said


@pytest.mark.parametrize(
    ("programs", "says"),
    [
        ({"uname": "echo Linux"}, ["Go 1.26", "Python 3.10 or newer"]),
        ({**LINUX, "uname": "echo Darwin"}, ["Linux: agents and trainers do not run on macOS yet", "GOOS=darwin"]),
        ({**LINUX, "go": "case $2 in GOVERSION) echo go1.21.3;; *) echo local;; esac"}, ["go is go1.21.3"]),
        ({**LINUX, "python3": '[[ "$2" != *ensurepip* ]]'}, ["venv and ensurepip", "python3-venv"]),
    ],
    ids=["nothing", "macOS", "an old Go", "Debian's Python"],
)
def test_all_that_is_missing_is_named_at_once(tmp_path: Path, programs: dict[str, str], says: list[str]) -> None:
    code, said = need(tmp_path, programs)
    assert code == 1
    assert [word for word in says if word not in said] == []
