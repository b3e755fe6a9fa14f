"""bit_exact over topics of a real Kafka, with aborted transactions and an empty partition:
each step has the same batches, whatever the number of workers and whichever process is
killed.

    make test-python-kafka     # needs java, and mvn once
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from integration.exact import Input, Runs
from integration.exact import run as run_plan

ROOT = Path(__file__).parents[4]
ROWS, PARTITIONS, EMPTY = 4000, 4, 2

SPEC = """
name: rows
kafka: {{brokers: ["{broker}"], topic: {topic}}}
decode:
  format: tsv
  columns:
    - {{name: id, path: "0", dtype: int64}}
    - {{name: dense, paths: ["1..3"], dtype: float32, default: "-1"}}
passes: 2
{more}
"""
SHUFFLED = "shuffle: {seed: 42, block: 32}\nbit_exact: {virtual_ranks: 8}\n"
IN_ORDER = "bit_exact: {virtual_ranks: 8, block: 50}\n"


class Broker(NamedTuple):
    address: str
    admin: AdminClient

    def topic(self, name: str, **config: str) -> None:
        topic = NewTopic(name, PARTITIONS, 1, config=config)
        self.admin.create_topics([topic])[name].result(120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka for the tests of this file."""
    folder = tmp_path_factory.mktemp("broker")
    program = folder / "broker-kafka"
    subprocess.run(["go", "build", "-o", program, "./internal/proof/testbroker/broker-kafka"], check=True, cwd=ROOT)
    with (
        (folder / "broker.log").open("w") as log,
        subprocess.Popen([program], stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            assert address, (folder / "broker.log").read_text()
            yield Broker(address, AdminClient({"bootstrap.servers": address}))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)


def ends(broker: Broker, isolation: str) -> list[int]:
    reader = Consumer({"bootstrap.servers": broker.address, "group.id": "ends", "isolation.level": isolation})
    try:
        return [reader.get_watermark_offsets(TopicPartition("rows", p), timeout=300)[1] for p in range(PARTITIONS)]
    finally:
        reader.close()


@pytest.fixture(scope="module")
def rows(broker: Broker) -> Input:
    """Fills the topic `rows` with transactions of all sizes, some of them aborted, in all partitions
    but one. Returns the committed records by Kafka's own offsets."""
    broker.topic("rows")
    offsets: dict[str, list[int]] = {}
    ids: dict[str, list[int]] = {}

    def written(record: int, keep: bool) -> Any:
        def on_delivery(error: Any, message: Any) -> None:
            assert error is None, error
            if keep:
                name = f"rows/{message.partition()}"
                offsets.setdefault(name, []).append(message.offset())
                ids.setdefault(name, []).append(record)

        return on_delivery

    one = Producer({"bootstrap.servers": broker.address, "transactional.id": "one", "log_level": 3})
    one.init_transactions(120)
    record, round_ = 0, 0
    while record < ROWS:
        keep = round_ % 3 != 1
        one.begin_transaction()
        for i in range(1 + round_ * 7 % 41):
            partition = (record + i) % (PARTITIONS - 1)
            partition += partition >= EMPTY
            number = record + i if keep else -1
            text = f"{number}\t{number % 7}\t\t0.5"
            one.produce("rows", text.encode(), partition=partition, on_delivery=written(number, keep))
        if keep:
            one.commit_transaction(120)
            record += 1 + round_ * 7 % 41
        else:
            one.flush(120)
            one.abort_transaction(30)
        round_ += 1
    # The coordinator ends a transaction first, and the partition's leader learns of it afterwards.
    while ends(broker, "read_committed") != ends(broker, "read_uncommitted"):
        pass
    assert len(ids) == PARTITIONS - 1
    return Input({name: (offsets[name], ids[name]) for name in ids})


def run(kind: Any, binary: str, folder: Path, broker: Broker, rows: Input, more: str, plan: Any) -> Runs:
    def prepare(job: Any) -> Input:
        spec = job.folder / "rows.yaml"
        spec.write_text(SPEC.format(broker=broker.address, topic="rows", more=more))
        job.headrace("dataset", "apply", "-f", str(spec))
        return rows

    return run_plan(kind, binary, folder, plan, prepare, patience=300)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("more", [SHUFFLED, IN_ORDER], ids=["shuffled", "in_order"])
def test_the_batches_of_a_topic_are_the_same_for_1_2_3_4_and_7_workers_and_through_kills(
    job: Any, binary: str, folder: str, broker: Broker, rows: Input, more: str
) -> None:
    def hashes(name: str, *plan: dict[str, Any]) -> list[str]:
        return run(type(job), binary, Path(folder) / name, broker, rows, more, list(plan)).hashes()

    first = hashes("w1", {"world": 1})
    assert len(first) > 12
    for world in (2, 3, 4, 7):
        assert hashes(f"w{world}", {"world": world}) == first, world
    killed = hashes(
        "killed",
        {"world": 3, "die": [1, 5, "before"]},
        {"world": 7, "die": [6, 9, "behind"]},
        {"world": 1, "die": [0, 11, "behind"]},
        {"world": 4},
    )
    assert killed == first


def test_a_topic_that_may_change_is_refused(job: Any, broker: Broker, rows: Input) -> None:
    """Compaction removes some records and keeps the others."""
    job.up("--model", "replicated")

    def applied(topic: str) -> subprocess.CompletedProcess[str]:
        spec = job.folder / "rows.yaml"
        spec.write_text(SPEC.format(broker=broker.address, topic=topic, more=IN_ORDER))
        return job.headrace("dataset", "apply", "-f", str(spec), check=False)

    for policy in ("compact", "compact,delete"):
        name = policy.replace(",", "-")
        broker.topic(name, **{"cleanup.policy": policy})
        out = applied(name)
        assert out.returncode != 0
        assert f"topic {name} is compacted (cleanup.policy)" in out.stderr, out.stderr
    assert applied("rows").returncode == 0
