"""Tests with a real Ray: make test-ray. They share the fixtures of tests/."""

from __future__ import annotations

import os

from fixtures import agents, binary, folder, job, no_environment, rng, way  # noqa: F401
from s3_server import server  # noqa: F401

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
