"""Checkpoints know the number of their records and their earliest and latest event time. Tests compare
`headrace audit` with what the generator wrote, after kills and a restore."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from agent import poll
from ports import free_port
from test_rewind import TRAINER, kill_everything, killed, newest, settings, stepped

MORE = """
lease: {initial: 1KiB, min: 1KiB}
"""


# A trainer with at most a hundred steps a second.
PACED = TRAINER.replace("import headrace,", "import headrace, time,").replace(
    "    for b in stream:\n", "    for b in stream:\n        time.sleep(0.01)\n"
)


def ended(trainer: Any) -> bool:
    return trainer.process.poll() is not None


def time_of(i: int) -> int | None:
    """The event time of a record. Every ninth record has none."""
    return None if i % 9 == 4 else 1_764_000_000_000 + i * 7919 % 100_003


def write(job: Any, n: int) -> None:
    """Writes n records into three files, with blank lines here and there."""
    for f in range(3):
        with (job.data / f"day_{f}.tsv").open("w") as file:
            for i in range(f * n // 3, (f + 1) * n // 3):
                at = time_of(i)
                file.write(f"{i}\t1\t2\t3\tw\tz\t{'' if at is None else at}\n" + "\n" * (i % 13 == 0))
            file.write("\n\n")


def apply(job: Any) -> None:
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows", MORE).replace("  format: tsv", '  format: tsv\n  event_time: "6"'))
    job.headrace("dataset", "apply", "-f", str(spec))


def ms(text: str | None) -> int | None:
    if text is None:
        return None
    return round(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def ids_in(job: Any, audit: dict[str, Any]) -> list[int]:
    """The ids that begin in the ranges of an audit."""
    ids = []
    for partition in audit["datasets"][0]["partitions"]:
        for pass_ in partition["passes"]:
            for r in pass_["ranges"]:
                at = 0
                for line in (job.data / r["name"]).read_bytes().splitlines(keepends=True):
                    if r["start"] <= at < r["end"] and line.strip():
                        ids.append(int(line.split(b"\t")[0]))
                    at += len(line)
    return ids


def checked(job: Any, where: Path) -> int:
    """Checks that a checkpoint's own count agrees with the records in its ranges. Returns their number."""
    audit = json.loads(job.headrace("audit", str(where), "-o", "json").stdout)
    ids = ids_in(job, audit)
    times = [t for t in map(time_of, ids) if t is not None]
    for records in (audit["datasets"][0]["records"], audit["datasets"][0]["partitions"][0]["records"]):
        assert (records["rows"], records["untold"]) == (len(ids), 0), job.logs()
        assert (ms(records["oldest"]), ms(records["newest"])) == (min(times), max(times))
    assert f"records: {len(ids):,}, of 2025-11-2" in job.headrace("audit", str(where)).stdout
    return len(ids)


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_checkpoint_counts_its_records_whatever_was_killed(job: Any, model: str) -> None:
    n = 6000
    write(job, n)
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    of_master = ("master", "--model", model, "--http", "off", "--session-ttl", "20s", "--allow-root", str(job.folder))
    of_agent = ("agent", "--name", "a1", "--socket", job.socket, "--allow-root", str(job.folder))
    master = job.start(*of_master)
    address = job.folder / "state" / "master.addr"
    poll(address.exists)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    agent = job.start(*of_agent)
    job.await_socket(agent)
    apply(job)
    trainer = job.trainer(PACED, **settings(job, stop=74))
    for kill in range(4):  # the trainer goes on, with batches in hand
        poll(lambda lines=10 + 12 * kill: trainer.log.read_text().count("\n") >= lines or ended(trainer))
        if ended(trainer):
            break
        if kill % 2 == 0:
            os.kill(agent.pid, signal.SIGKILL)
            agent.wait()
            agent = job.start(*of_agent)
        else:
            os.kill(master.pid, signal.SIGKILL)
            master.wait()
            master = job.start(*of_master)
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
    assert checked(job, newest(job)) == 70 * 50

    kill_everything(job)
    job.start(*of_master)
    job.await_socket(job.start(*of_agent))
    out = job.trainer(TRAINER, **settings(job)).ended()
    assert "restored 70" in out.splitlines(), out + job.logs()
    told = re.search(r"restored step 70: (\d+) records that were acked come again", out)
    assert told is None or int(told[1]) in (50, 100, 150, 200), out
    assert checked(job, newest(job)) == n - (n - 70 * 50) % 350
    assert len(stepped(out)) == n - 70 * 50


def test_a_rewind_says_how_many_records_come_again(job: Any) -> None:
    write(job, 3000)
    job.up("--model", "replicated")
    apply(job)
    killed(job, 36)
    found = json.loads(job.headrace("ckpt", "list", str(job.folder / "ckpt"), "-o", "json").stdout)
    to = found[-1]
    assert to["step"] == 21
    (dataset,) = json.loads(job.headrace("status", "-o", "json").stdout)["datasets"]
    acked = dataset["records"]["rows"]
    assert acked >= 35 * 50
    dry = json.loads(job.headrace("rewind", "default", "--to", to["path"], "--dry-run", "-o", "json").stdout)
    assert (dry["records"]["rows"], dry["records"]["untold"]) == (acked - 21 * 50, 0)
    text = job.headrace("rewind", "default", "--to", to["path"], "--dry-run").stdout
    assert f"records read again: {acked - 21 * 50:,}\n" in text
    job.headrace("rewind", "default", "--to", to["path"], "--yes")
    (dataset,) = json.loads(job.headrace("status", "-o", "json").stdout)["datasets"]
    assert dataset["records"]["rows"] == 21 * 50
