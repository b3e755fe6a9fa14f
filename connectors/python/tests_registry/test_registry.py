"""Avro records that Confluent's serializers wrote with a real registry, from a real Kafka to a
trainer: its columns are what fastavro reads."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import random
import signal
import threading
import time
from typing import Any

import fastavro
import headrace
import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from servers import Place, seeded

# The registry's client in confluent-kafka leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

V1: dict[str, Any] = {
    "type": "record", "name": "Click", "namespace": "shop", "fields": [
        {"name": "id", "type": "long"},
        {"name": "label", "type": "int"},
        {"name": "user", "type": ["null", {"type": "record", "name": "User", "fields": [
            {"name": "id", "type": "long"}, {"name": "country", "type": ["null", "string"]}]}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "device", "type": {"type": "enum", "name": "Device", "symbols": ["PHONE", "DESKTOP"]}},
        {"name": "attributes", "type": {"type": "map", "values": "double"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
# The second version has two fields more, one of them before others.
V2: dict[str, Any] = json.loads(json.dumps(V1))
V2["fields"].insert(1, {"name": "score", "type": ["null", "double"], "default": None})
V2["fields"].append({"name": "seen", "type": {"type": "array", "items": {"type": "record", "name": "Seen", "fields": [
    {"name": "position", "type": ["null", "int"]}]}}, "default": []})  # fmt: skip

SPEC = """
name: clicks
kafka: {{brokers: ["{broker}"], topic: {topic}, end: {end}}}
decode:
  format: avro
  registry: {{url: "{registry}"}}
  event_time: at
  on_error: {on_error}
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: label, path: label, dtype: float32}}
    - {{name: user, path: /user/id, dtype: int64, default: -1}}
    - {{name: country, path: /user/country, dtype: string, missing: mask}}
    - {{name: price, path: price, dtype: float64}}
    - {{name: tags, path: "/tags/*", dtype: string}}
    - {{name: device, path: device, dtype: string}}
    - {{name: width, path: /attributes/width, dtype: float64, default: -1}}
    - {{name: score, path: score, dtype: float64, missing: mask}}
    - {{name: seen, path: "/seen/*/position", dtype: int32, default: -5}}
"""


def click(rng: random.Random, number: int, version: int) -> dict[str, Any]:
    user = {"id": rng.getrandbits(62), "country": rng.choice([None, "de", "fr", "日本"])}
    c: dict[str, Any] = {
        "id": number,
        "label": number % 2,
        "user": None if rng.random() < 0.2 else user,
        "price": decimal.Decimal(rng.randrange(-(10**6), 10**8)).scaleb(-2),
        "tags": [f"t{rng.randrange(99)}" for _ in range(rng.randrange(4))],
        "device": rng.choice(["PHONE", "DESKTOP"]),
        "attributes": {k: rng.random() for k in rng.sample(["width", "height", "depth"], rng.randrange(4))},
        "at": EPOCH + datetime.timedelta(milliseconds=rng.randrange(10**12, 2 * 10**12)),
    }
    if version == 2:
        c["score"] = None if rng.random() < 0.3 else rng.random()
        c["seen"] = [{"position": rng.choice([None, rng.randrange(100)])} for _ in range(rng.randrange(3))]
    return c


class Topic:
    """A topic, and what fastavro reads in the bytes that were written to it."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        place.admin.create_topics([NewTopic(name, 2, 1)])[name].result(120)
        self.producer = Producer({"bootstrap.servers": place.broker, "log_level": 3})
        self.serializers = {v: AvroSerializer(place.schemas, json.dumps(s)) for v, s in ((1, V1), (2, V2))}
        self.parsed = {v: fastavro.parse_schema(s) for v, s in ((1, V1), (2, V2))}
        self.read: dict[int, dict[str, Any]] = {}

    def write(self, rng: random.Random, numbers: range) -> None:
        for number in numbers:
            version = rng.choice([1, 2])
            context = SerializationContext(self.name, MessageField.VALUE)
            value = self.serializers[version](click(rng, number, version), context)
            assert value is not None
            read = fastavro.schemaless_reader(io.BytesIO(value[5:]), self.parsed[version], None)
            assert isinstance(read, dict)
            self.read[number] = read
            self.raw(value)
        self.producer.flush(120)

    def raw(self, value: bytes) -> None:
        self.producer.produce(self.name, value)

    def spec(self, job: Any, end: str = "latest", on_error: str = "fail") -> str:
        spec = job.folder / "clicks.yaml"
        where = {"broker": self.place.broker, "topic": self.name, "registry": self.place.registry}
        spec.write_text(SPEC.format(**where, end=end, on_error=on_error))
        return str(spec)


def wanted(c: dict[str, Any]) -> dict[str, Any]:
    user = c["user"] or {"id": -1, "country": None}
    return {
        "label": float(c["label"]), "user": user["id"], "country": user["country"], "price": float(c["price"]),
        "tags": c["tags"], "device": c["device"], "width": c["attributes"].get("width", -1.0), "score": c.get("score"),
        "seen": [-5 if s["position"] is None else s["position"] for s in c.get("seen", [])] or [-5],
        "at": (c["at"] - EPOCH) // datetime.timedelta(milliseconds=1),
    }  # fmt: skip


def rows_of(b: Any) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    countries, scores = b.mask("country"), b.mask("score")
    for i, number in enumerate(b["id"].tolist()):
        assert number not in rows
        rows[number] = {
            "label": float(b["label"][i]), "user": int(b["user"][i]),
            "country": b["country"][i] if countries[i] else None,
            "price": float(b["price"][i]), "tags": list(b["tags"][i]), "device": b["device"][i],
            "width": float(b["width"][i]),
            "score": float(b["score"][i]) if scores[i] else None, "seen": np.asarray(b["seen"][i]).tolist(),
        }  # fmt: skip
    return rows


def trained(rows: int | None = None) -> dict[int, dict[str, Any]]:
    """What a trainer gets: to the end, or until it has so many rows."""
    got: dict[int, dict[str, Any]] = {}
    with headrace.dataset("clicks").batches(64, max_wait=0.05) as stream:
        for b in stream:
            new = rows_of(b)
            assert not got.keys() & new.keys()
            got.update(new)
            stream.step()
            if rows is not None and len(got) >= rows:
                break
    return got


def check(got: dict[int, dict[str, Any]], topic: Topic) -> None:
    assert got.keys() == topic.read.keys()
    for number, row in got.items():
        want = wanted(topic.read[number])
        del want["at"]
        assert row == want, number


def test_two_versions_of_a_schema_give_the_columns_that_fastavro_reads(job: Any, place: Place) -> None:
    topic = Topic(place, "versions")
    topic.write(seeded(), range(3000))
    spec = topic.spec(job)
    checked = job.headrace("check", "-f", spec)
    assert "3,000 records, 0 bad" in checked.stdout
    job.up()
    job.headrace("dataset", "apply", "-f", spec)
    peeked = json.loads(job.headrace("peek", "clicks", "-n", "1", "-o", "json").stdout)
    row = peeked["rows"][0] if isinstance(peeked, dict) else peeked[0]
    assert row["price"] == wanted(topic.read[row["id"]])["price"]
    check(trained(), topic)


def test_records_wait_for_a_registry_that_does_not_answer(job: Any, place: Place) -> None:
    topic = Topic(place, "waiting")
    topic.write(seeded(), range(200))
    job.up()
    job.headrace("dataset", "apply", "-f", topic.spec(job, end="never"))
    os.kill(place.registry_pid, signal.SIGSTOP)
    try:
        got: list[dict[int, dict[str, Any]]] = []
        trainer = threading.Thread(target=lambda: got.append(trained(200)))
        trainer.start()
        deadline = time.monotonic() + 240
        while "the schema registry does not answer" not in job.logs():
            assert time.monotonic() < deadline, job.logs()
            time.sleep(0.05)
        assert not got
    finally:
        os.kill(place.registry_pid, signal.SIGCONT)
    trainer.join(240)
    assert got, job.logs()
    check(got[0], topic)


def test_what_is_no_record_is_a_bad_record(job: Any, place: Place) -> None:
    topic = Topic(place, "bad")
    rng = seeded()
    topic.write(rng, range(50))
    topic.raw(b"no wire format")
    topic.raw(b"\x00\x0f\xff\xff\xff1")
    topic.write(rng, range(50, 100))
    job.up()
    job.headrace("dataset", "apply", "-f", topic.spec(job, on_error="skip"))
    check(trained(), topic)
    letters = job.headrace("deadletter", "list", "clicks").stdout
    assert "wire format" in letters
    assert "268435455" in letters


def test_a_schema_that_does_not_fit_stops_the_dataset_and_is_named(job: Any, place: Place) -> None:
    topic = Topic(place, "unfit")
    topic.write(seeded(), range(3))
    number = place.schemas.register_schema(
        "other-value", Schema('{"type":"record","name":"Other","fields":[{"name":"id","type":"string"}]}', "AVRO")
    )
    topic.raw(b"\x00" + number.to_bytes(4, "big") + b"\x02x")
    topic.producer.flush(120)
    job.up()
    job.headrace("dataset", "apply", "-f", topic.spec(job))
    why = f"column id .*is a string, which does not become int64; choose another dtype .schema {number}."
    with pytest.raises(headrace.HeadraceError, match=why):
        trained()
