"""The fixtures of tests/ and tests/integration/, for the suites of frameworks and engines.

Those suites run without tests/, so pytest does not load its conftest.py files for them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent


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
binary, job, Job = _integration.binary, _integration.job, _integration.Job
