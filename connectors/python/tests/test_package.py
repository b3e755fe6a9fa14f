"""The package as it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headrace
import pytest
from headrace import _cli

ROOT = Path(__file__).parents[3]


def test_all_versions_are_one() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert headrace.__version__ == version
    assert f'version = "{version}"' in (ROOT / "connectors/python/pyproject.toml").read_text()


def test_everything_asks_for_the_same_python() -> None:
    """Not for 3.9: there an exception of a signal's handler can leave a lock locked (bpo-29988), and next() hangs."""
    assert 'requires-python = ">=3.10"' in (ROOT / "connectors/python/pyproject.toml").read_text()
    for place in (".ci/need", "README.md", "CONTRIBUTING.md", "connectors/python/README.md"):
        text = (ROOT / place).read_text()
        assert "Python 3.10 or newer" in text, place
        assert "3.9 or newer" not in text, place


def test_the_wheel_carries_the_license_of_the_repository() -> None:
    assert (ROOT / "connectors/python/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_it_is_typed_and_imports_without_a_warning() -> None:
    assert (Path(headrace.__file__).parent / "py.typed").exists()
    subprocess.run([sys.executable, "-W", "error", "-c", "import headrace"], check=True)


def test_it_imports_nothing_but_numpy_and_the_standard_library() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules); import headrace\n"
        "new = {m.split('.')[0] for m in set(sys.modules) - before} - {'headrace', 'numpy', '__mp_main__'}\n"
        "print(sorted(new - set(getattr(sys, 'stdlib_module_names', new))))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "[]"


def test_the_command_becomes_the_binary(tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    fake.write_text('#!/bin/sh\necho "got $*"; exit 7\n')
    fake.chmod(0o755)
    out = subprocess.run(
        [sys.executable, "-m", "headrace", "status", "-o", "json"],
        env={**os.environ, "HEADRACE_BIN": str(fake)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (out.returncode, out.stdout) == (7, "got status -o json\n")


def test_in_a_checkout_the_command_is_what_was_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADRACE_BIN", raising=False)
    monkeypatch.setattr(_cli, "CARRIED", Path("/nowhere"))
    assert (_cli.CHECKOUT / "go.mod").exists()
    for name in ("build/headrace", "connectors/python/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(_cli, "CHECKOUT", tmp_path)
    assert _cli.binary() == str(tmp_path / "build" / "headrace")


def test_without_a_binary_the_command_says_where_one_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_BIN", raising=False)
    monkeypatch.setattr(_cli, "CARRIED", Path("/nowhere"))
    monkeypatch.setattr(_cli, "CHECKOUT", Path("/nowhere"))
    with pytest.raises(FileNotFoundError, match="make build"):
        _cli.binary()
    monkeypatch.setenv("HEADRACE_BIN", "/nowhere/headrace")
    with pytest.raises(FileNotFoundError, match="HEADRACE_BIN=/nowhere/headrace"):
        _cli.binary()
