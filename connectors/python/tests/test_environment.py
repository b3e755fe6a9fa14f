"""environment.py: where the packages of a connector's tests are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[1] / "environment.py"


def test_checkouts_that_need_other_packages_have_a_folder_each(tmp_path: Path) -> None:
    """Installing the second one's packages leaves the first one's folder as it was."""
    other = tmp_path / "other" / "needy-1.0.dist-info"  # a package on PYTHONPATH, with a need that is not there
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: needy\nVersion: 1.0\nRequires-Dist: not-there\n")
    env = {**os.environ, "HEADRACE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(other.parent)}

    def python_of(checkout: str) -> Path:
        packages = tmp_path / checkout / "requirements.txt"
        packages.parent.mkdir(exist_ok=True)
        packages.write_text(f"# of checkout {checkout}: nothing to install\n")
        done = subprocess.run(
            [sys.executable, PROGRAM, "ray", packages], env=env, capture_output=True, text=True, timeout=250
        )
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    first = python_of("a")
    mark = first.parents[1] / "mark"
    mark.write_text("")
    second = python_of("b")
    assert first.parents[1] != second.parents[1]
    assert os.access(first, os.X_OK)
    assert os.access(second, os.X_OK)
    assert python_of("a") == first
    assert mark.exists(), "the packages were installed again"
