"""Tests with a real torch: make test-torch. They share the fixtures of tests/."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures import agents, binary, folder, job, no_environment, rng, way  # noqa: F401
from forks import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Has imported torch and the frameworks: a start of a process takes seconds of CPU, a fork none."""
    made = Zygote("lightning.pytorch", "transformers.trainer", "accelerate", "torch.distributed.checkpoint")
    yield made
    made.end()
