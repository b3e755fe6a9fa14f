"""Tests with a real Spark: make test-spark. They share the fixtures of connectors/python."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[2] / "python" / "tests"


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_unit = _load("headrace_unit_conftest", TESTS / "conftest.py")
_integration = _load("headrace_integration_conftest", TESTS / "integration" / "conftest.py")
folder = _unit.folder
binary, job = _integration.binary, _integration.job
