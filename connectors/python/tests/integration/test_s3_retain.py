"""files.retain on a real S3 server: trained objects are deleted while master, agent and trainer are
killed, and each record comes once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from retaining import deletes_what_was_trained
from s3_server import Server, server
from test_s3 import settings

__all__ = ["server"]

SPEC = """
name: rows
files: {{root: s3://lake/{prefix}, connection: lake, end: never, refresh: 100ms, retain: 1s}}
decode:
  format: csv
  columns:
    - {{name: id, path: 0, dtype: int64}}
lease: {{initial: 1KiB, min: 1KiB, max: 4KiB}}
"""


class Bucket:
    def __init__(self, job: Any, server: Server, prefix: str) -> None:
        self.job, self.server, self.prefix = job, server, prefix
        self.turn = threading.Lock()  # the server's program takes one command at a time

    def put(self, name: str, text: str) -> None:
        part = self.job.folder / f"new-{name}"
        part.write_text(text)
        with self.turn:
            self.server.put(f"{self.prefix}/{name}", part)

    def names(self) -> set[str]:
        with self.turn:
            keys = self.server.list(f"{self.prefix}/")
        return {key.removeprefix(f"{self.prefix}/") for key in keys}


@pytest.mark.timeout(1800)
def test_objects_that_were_trained_are_deleted_and_no_other_ones(job: Any, server: Server) -> None:
    prefix = f"retain-{job.folder.name}"
    settings(job, server, prefix)
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(prefix=prefix))
    deletes_what_was_trained(job, Bucket(job, server, prefix), spec, *job.config)
