"""The Python of docs/LANDING.md, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[4] / "docs" / "LANDING.md").read_text()
# That for Ray runs in tests_ray.
PROGRAMS = [p for p in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "headrace.ray" not in p]
SPECS = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)

READ = """
import headrace
rows = 0
with headrace.dataset("clicks").batches(100, max_wait=0.05) as stream:
    for b in stream:
        rows += len(b["user"])
        stream.step()
        if rows == 10_003:
            break
print("rows", rows)
"""


def test_the_programs_push_each_record_once(job: Any) -> None:
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPECS[0])
    job.up("-f", str(spec))
    assert len(PROGRAMS) == 2
    for again in ("False", "True"):
        assert job.helper(PROGRAMS[0]).ended() == f"10000 {again}\n"
        assert job.helper(PROGRAMS[1]).ended() == ""
    assert "rows 10003\n" in job.helper(READ).ended()
