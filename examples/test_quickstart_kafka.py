"""The quick start on a real Kafka, with a small log. Its report is checked: what it claims of Headrace,
and against a recount of the journals of both sides that shares no code with it.

    make test-quickstart-kafka     # needs java, and mvn once
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from demo_run import (
    TOPIC_KILLS,
    TOPIC_RECORDS,
    Run,
    all_four_were_killed,
    demo,
    entries,
    interrupted,
    nothing_is_lost,
    recount,
    run_of,
    the_rival_had_the_same,
)

PARTITIONS, STRIPE = 4, 128


KAFKA = ("--source", "kafka")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("quickstart"), TOPIC_RECORDS, TOPIC_KILLS, *KAFKA)


def test_no_record_is_lost_and_each_repeat_has_its_reason(run: Run) -> None:
    nothing_is_lost(run.report, run.records)


def test_the_broker_was_killed_too_and_records_came_after_it(run: Run) -> None:
    all_four_were_killed(run.report)


def test_records_were_learned_while_others_were_produced(run: Run) -> None:
    live = run.report["live"]
    assert live["produced_s"] >= run.records / 10_000 - 1
    produced = (run.folder / "run" / "truth" / "produced.jsonl").read_text().splitlines()
    last = max(json.loads(line)["sent_ns"] for line in produced)
    journals = (run.folder / "run" / "journals").glob("*.journal")
    learned = sum(rows for path in journals for kind, at, rows, _ in entries(path) if kind == 6 and at < last)
    assert learned, "no record was learned before the last one was produced"
    assert 0 < live["freshness"]["p50_ms"] <= live["freshness"]["p99_ms"] <= live["freshness"]["max_ms"]


def test_the_consumer_group_got_the_same_records_and_the_same_kills(run: Run) -> None:
    the_rival_had_the_same(run.report, "automatic commits")
    automatic, by_hand = run.report["consumer_groups"]
    for group in (automatic, by_hand):
        assert set(group["worker_share"]) == {"0", "1", "2", "3"}, "a member had no partition before the first kill"


def test_the_last_table_says_both(run: Run) -> None:
    table = run.output[run.output.index("The same records at the same time"):]
    g = run.report["consumer_groups"][0]
    assert f"{run.report['applied_once']:,}" in table
    assert f"{g['applied_twice']:,}" in table
    assert "headrace init " in run.output.strip().splitlines()[-1]


def numbers(name: str, offsets: np.ndarray) -> np.ndarray:
    """The records go to the partitions in turn, STRIPE at a time."""
    partition = int(name.rpartition("/")[2])
    stripe, rest = np.divmod(offsets, STRIPE)
    return (stripe * PARTITIONS + partition) * STRIPE + rest


def test_a_recount_of_the_journals_of_both_agrees(run: Run) -> None:
    folder = run.folder / "run"
    lines = b"".join((folder / "log" / f"day_{k}.tsv").read_bytes() for k in range(8)).split(b"\n")[:-1]
    crcs = np.array([zlib.crc32(line) for line in lines], np.uint64)
    assert len(lines) == run.records
    automatic, by_hand = run.report["consumer_groups"]
    all_three = ((run.report, "journals", None), (automatic, "group", crcs), (by_hand, "careful", crcs))
    for report, journals, sums in all_three:
        counted = recount(folder / journals, run.records, numbers, sums)
        counted.agrees_with(report)
        assert int(np.maximum(counted.sure + counted.doubt - 1, 0).sum()) == report["repeats"]


def test_an_interrupt_leaves_no_broker_no_process_and_no_file(tmp_path: Path) -> None:
    interrupted(tmp_path, "SIGKILL to consumer-1", *KAFKA, runs="java")


@pytest.mark.parametrize("lacks", ["java", "confluent-kafka"])
def test_what_is_missing_is_named_with_what_to_do(tmp_path: Path, lacks: str) -> None:
    env = dict(os.environ)
    if lacks == "java":
        env["PATH"] = str(tmp_path)
    else:
        (tmp_path / "confluent_kafka.py").write_text("raise ModuleNotFoundError('confluent_kafka')\n")
        env["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run(demo(tmp_path, *KAFKA), capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"install {'a JDK' if lacks == 'java' else 'confluent-kafka'}" in said, said
