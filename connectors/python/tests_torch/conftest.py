"""Tests with a real torch: make test-torch. They share the fixtures of tests/."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures import agents, binary, folder, job, no_environment, rng, way  # noqa: F401
from forks import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Has imported torch and the frameworks: a start of a process takes seconds of CPU, a fork none."""
    made = Zygote("lightning.pytorch", "transformers.trainer", "accelerate", "torch.distributed.checkpoint")
    yield made
    made.end()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Slots of this test alone, in the real tmpfs."""
    slots = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    slots.mkdir(mode=0o700)
    yield slots
    shutil.rmtree(slots)
