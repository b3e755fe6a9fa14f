"""Tests with a real Flink: make test-flink-kills. They share the fixtures of connectors/python."""

from __future__ import annotations

from fixtures import binary, folder, job  # noqa: F401
from s3_server import server  # noqa: F401
