"""Tests with a real TensorFlow: make test-tf. They share the fixtures of tests/."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

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


def pytest_configure(config: Any) -> None:
    """TensorFlow's own modules warn of each other."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    config.addinivalue_line("filterwarnings", "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """TensorFlow takes a while to start, and the tests start it often: on a busy machine
    that is minutes. The deadline only ends a hang."""
    for item in items:
        if not any(item.iter_markers("timeout")):
            item.add_marker(pytest.mark.timeout(1800))
