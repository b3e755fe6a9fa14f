"""Tests with a real TensorFlow: make test-tf. They share the fixtures of tests/."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fixtures import agents, binary, folder, job, no_environment, rng, way  # noqa: F401


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
