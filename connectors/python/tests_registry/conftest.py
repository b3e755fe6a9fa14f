"""Tests with a real schema registry and a real Kafka: make test-registry. They share the
fixtures of tests/."""

from __future__ import annotations

from fixtures import agents, binary, folder, job, no_environment, rng, way  # noqa: F401
from servers import place  # noqa: F401
