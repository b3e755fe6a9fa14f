"""Tests with a real Ray: make test-ray. They share the fixtures of tests/."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

TESTS = Path(__file__).parent.parent / "tests"


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
agents, folder, no_environment, rng, way = (
    _unit.agents, _unit.folder, _unit.no_environment, _unit.rng, _unit.way,
)  # fmt: skip
binary, job = _integration.binary, _integration.job
