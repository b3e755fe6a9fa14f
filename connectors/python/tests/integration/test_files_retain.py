"""files.retain with real processes and a folder: trained files are deleted while master, agent and
trainer are killed, and each record comes once."""

from __future__ import annotations

from typing import Any

import pytest
from retaining import deletes_what_was_trained

SPEC = """
name: rows
files: {{root: {root}, end: never, refresh: 100ms, complete: renamed, retain: 1s}}
decode:
  format: csv
  columns:
    - {{name: id, path: 0, dtype: int64}}
lease: {{initial: 1KiB, min: 1KiB, max: 4KiB}}
"""


class Folder:
    def __init__(self, job: Any) -> None:
        self.job = job

    def put(self, name: str, text: str) -> None:
        """Writes the file elsewhere and renames it."""
        part = self.job.folder / f"new-{name}"
        part.write_text(text)
        part.rename(self.job.data / name)

    def names(self) -> set[str]:
        return {file.name for file in self.job.data.iterdir()}


@pytest.mark.timeout(1800)
def test_files_that_were_trained_are_deleted_and_no_other_ones(job: Any) -> None:
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(root=job.data))
    deletes_what_was_trained(job, Folder(job), spec)
