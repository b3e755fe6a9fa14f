"""catch_up: newest_first with real processes. Pushed records come before the history in files, also
those that are pushed while the history is read, and each record comes once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import pytest
from agent import poll

FILES, OF_A_FILE = 40, 100
HISTORY = FILES * OF_A_FILE
BEFORE, MEANWHILE = 2000, 1000  # pushed records: before the trainer begins, and later

SPEC = """
name: rows
backfill:
  files: {{root: {root}}}
  decode:
    format: csv
    columns:
      - {{name: id, path: 0, dtype: int64}}
landing: {{end: never, partitions: 2}}
catch_up: newest_first
lease: {{initial: 100, min: 100, max: 100}}
decode:
  format: json
  columns:
    - {{name: id, path: /id, dtype: int64}}
"""

# Waits after the number of records in its argument. It is slow, so its leases of about a second are a
# small part of all records.
TRAINER = """
import headrace, pathlib, sys, time

go, waits_at, total = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
seen = 0
with headrace.dataset("rows").batches(10, max_wait=0.1) as stream:
    for b in stream:
        ids = b["id"].tolist()
        print(*ids, flush=True)
        seen += len(ids)
        time.sleep(0.01)
        stream.step()
        if seen >= total:
            break
        while seen >= waits_at and not go.exists():
            time.sleep(0.01)
"""


def start_master(job: Any) -> Any:
    """Starts a master, also after a kill, which leaves the address file of the one before."""
    address = Path(job.env["HEADRACE_STATE"]) / "master.addr"
    address.unlink(missing_ok=True)
    master = job.start(
        *("master", "--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s"),
        *("--allow-root", str(job.folder)),
    )
    poll(lambda: address.exists() or master.poll() is not None)
    assert master.poll() is None, job.logs()
    return master


def push(start: int, stop: int) -> None:
    headrace.push("rows", ({"id": i} for i in range(start, stop)), transaction=f"from {start}")


def test_the_newest_records_come_first_and_all_come_once(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    for f in range(FILES):
        lines = (f"{f * OF_A_FILE + i}\n" for i in range(OF_A_FILE))
        (job.data / f"day_{f:02}.csv").write_text("".join(lines))
    spec, go = job.folder / "rows.yaml", job.folder / "go"
    spec.write_text(SPEC.format(root=job.data))
    master = start_master(job)
    job.headrace("dataset", "apply", "-f", str(spec))
    pushed = HISTORY + BEFORE  # ids of the history are below HISTORY
    push(HISTORY, pushed)
    job.await_socket(job.start("agent", "--name", "one", "--socket", job.socket, "--allow-root", str(job.folder)))

    total = pushed + MEANWHILE
    trainer = job.helper(TRAINER, str(go), str(BEFORE + 1000), str(total))
    trainer.printed(BEFORE // 20)  # it has half of the pushed records
    master.kill()
    master.wait()
    master = start_master(job)
    trainer.printed((BEFORE + 1000) // 10)
    push(pushed, total)
    master.kill()
    master.wait()
    start_master(job)
    at = len(trainer.log.read_text().split())
    go.touch()

    ids = [int(word) for word in trainer.ended().split()]
    assert Counter(ids) == Counter(range(total))
    live = [i >= HISTORY for i in ids]
    # While there are newer records, one lease in eight is of the history. A new master begins to count
    # again.
    last = max(n for n, i in enumerate(ids) if HISTORY <= i < pushed)
    assert live[0]
    assert live[:last].count(False) <= 800, last
    # Records that were pushed while the history was read come before most of the rest of the history.
    last = max(n for n, i in enumerate(ids) if i >= pushed)
    assert live[last:].count(False) >= 500, (at, last)
