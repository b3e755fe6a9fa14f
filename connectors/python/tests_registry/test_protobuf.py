"""Protobuf messages that Confluent's serializers wrote with a real registry, from a real Kafka
to a trainer: its columns are the fields that Google's protobuf has."""

from __future__ import annotations

import json
import random
from typing import Any

import headrace
import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from servers import Place, seeded

# The registry's client in confluent-kafka leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")

F = descriptor_pb2.FieldDescriptorProto
KINDS = {
    "int32": F.TYPE_INT32, "int64": F.TYPE_INT64, "sint64": F.TYPE_SINT64,
    "float": F.TYPE_FLOAT, "double": F.TYPE_DOUBLE, "string": F.TYPE_STRING,
}  # fmt: skip


def field(message: Any, number: int, name: str, kind: str, repeated: bool = False, oneof: int | None = None) -> None:
    f = message.field.add(name=name, number=number, label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    if kind in KINDS:
        f.type = KINDS[kind]
    else:
        f.type_name = kind
        f.type = F.TYPE_ENUM if kind.endswith("Device") else F.TYPE_MESSAGE
    if oneof is not None:
        f.oneof_index = oneof


def entry(message: Any, name: str, value: str) -> None:
    e = message.nested_type.add(name=name)
    e.options.map_entry = True
    field(e, 1, "key", "string")
    field(e, 2, "value", value)


def user_file() -> Any:
    f = descriptor_pb2.FileDescriptorProto(name="shop/user.proto", package="shop", syntax="proto3")
    user = f.message_type.add(name="User")
    field(user, 1, "id", "int64")
    user.oneof_decl.add(name="_country")
    field(user, 2, "country", "string", oneof=0)
    user.field[-1].proto3_optional = True
    return f


def click_file(version: int) -> Any:
    """The second version has fields more, another order, and another message before it."""
    f = descriptor_pb2.FileDescriptorProto(name="shop/click.proto", package="shop", syntax="proto3")
    f.dependency.extend(["shop/user.proto", "google/protobuf/timestamp.proto"])
    if version == 2:
        f.message_type.add(name="Before")
    device = f.enum_type.add(name="Device")
    for i, name in enumerate(["UNKNOWN", "PHONE", "DESKTOP"]):
        device.value.add(name=name, number=i)
    outer = f.message_type.add(name="Outer")
    click = outer.nested_type.add(name="Click")
    click.oneof_decl.add(name="target")
    field(click, 1, "id", "int64")
    if version == 2:
        click.oneof_decl.add(name="_score")
        field(click, 20, "score", "double", oneof=1)
        click.field[-1].proto3_optional = True
    field(click, 2, "label", "int32")
    field(click, 3, "user", ".shop.User")
    field(click, 4, "tags", "string", repeated=True)
    field(click, 5, "embedding", "float", repeated=True)
    field(click, 6, "device", ".shop.Device")
    entry(click, "AttributesEntry", "double")
    field(click, 7, "attributes", ".shop.Outer.Click.AttributesEntry", repeated=True)
    field(click, 8, "at", ".google.protobuf.Timestamp")
    field(click, 9, "delta", "sint64")
    field(click, 10, "url", "string", oneof=0)
    field(click, 11, "item", "int64", oneof=0)
    if version == 2:
        seen = outer.nested_type.add(name="Seen")
        field(seen, 1, "position", "int32")
        field(click, 21, "seen", ".shop.Outer.Seen", repeated=True)
    return f


def classes(version: int) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for f in (
        timestamp_pb2.DESCRIPTOR.serialized_pb,
        user_file().SerializeToString(),
        click_file(version).SerializeToString(),
    ):
        pool.AddSerializedFile(f)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Click"))


COLUMNS = """
  event_time: at
  on_error: {on_error}
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: label, path: label, dtype: float32}}
    - {{name: user, path: /user/id, dtype: int64, default: -1}}
    - {{name: country, path: /user/country, dtype: string, missing: mask}}
    - {{name: tags, path: "/tags/*", dtype: string}}
    - {{name: embedding, path: "/embedding/*", dtype: float32}}
    - {{name: device, path: device, dtype: string}}
    - {{name: width, path: /attributes/width, dtype: float64, default: -1}}
    - {{name: ms, path: at, dtype: int64}}
    - {{name: delta, path: delta, dtype: int64}}
    - {{name: url, path: url, dtype: string, missing: mask}}
    - {{name: item, path: item, dtype: int64, missing: mask}}
    - {{name: score, path: score, dtype: float64, missing: mask}}
    - {{name: seen, path: "/seen/*/position", dtype: int32}}
"""
SPEC = """
name: clicks
kafka: {{brokers: ["{broker}"], topic: {topic}, end: {end}}}
decode:
  format: protobuf
  registry: {{url: "{registry}"}}
""" + COLUMNS  # fmt: skip


def click(rng: random.Random, cls: Any, number: int, version: int) -> Any:
    c = cls(id=number, label=number % 2, device=rng.randrange(4), delta=rng.randrange(-(10**12), 10**12))
    if rng.random() < 0.8:
        c.user.id = rng.choice([0, rng.getrandbits(62)])
        if rng.random() < 0.5:
            c.user.country = rng.choice(["", "de", "日本"])
    c.tags.extend(f"t{rng.randrange(99)}" for _ in range(rng.randrange(4)))
    c.embedding.extend(np.float32(rng.random()) for _ in range(rng.choice([0, 8, 8])))
    for k in rng.sample(["width", "height", "depth"], rng.randrange(4)):
        c.attributes[k] = rng.random()
    c.at.FromMilliseconds(rng.randrange(-(10**12), 2 * 10**12))
    target = rng.randrange(3)
    if target == 0:
        c.url = "http://x/" + str(number)
    elif target == 1:
        c.item = rng.choice([0, number])
    if version == 2:
        if rng.random() < 0.7:
            c.score = rng.choice([0.0, rng.random()])
        for _ in range(rng.randrange(3)):
            c.seen.add(position=rng.randrange(3))
    return c


def wanted(c: Any) -> dict[str, Any]:
    second = "score" in c.DESCRIPTOR.fields_by_name
    names = c.DESCRIPTOR.fields_by_name["device"].enum_type.values_by_number
    return {
        "label": float(c.label), "user": c.user.id if c.HasField("user") else -1,
        "country": c.user.country if c.HasField("user") and c.user.HasField("country") else None,
        "tags": list(c.tags), "embedding": list(c.embedding),
        "device": names[c.device].name if c.device in names else str(c.device),
        "width": c.attributes.get("width", -1.0), "ms": c.at.ToMilliseconds(), "delta": c.delta,
        "url": c.url if c.HasField("url") else None, "item": c.item if c.HasField("item") else None,
        "score": c.score if second and c.HasField("score") else None,
        "seen": [s.position for s in c.seen] if second else [],
    }  # fmt: skip


def rows_of(b: Any) -> dict[int, dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for i, number in enumerate(b["id"].tolist()):
        assert number not in rows
        row: dict[str, Any] = {
            "label": float(b["label"][i]), "user": int(b["user"][i]), "tags": list(b["tags"][i]),
            "embedding": np.asarray(b["embedding"][i]).tolist(), "device": b["device"][i],
            "width": float(b["width"][i]), "ms": int(b["ms"][i]), "delta": int(b["delta"][i]),
            "seen": np.asarray(b["seen"][i]).tolist(),
        }  # fmt: skip
        for name in ("country", "url", "item", "score"):
            row[name] = b[name][i] if b.mask(name)[i] else None
        rows[number] = row
    return rows


def trained() -> dict[int, dict[str, Any]]:
    got: dict[int, dict[str, Any]] = {}
    with headrace.dataset("clicks").batches(64, max_wait=0.05) as stream:
        for b in stream:
            new = rows_of(b)
            assert not got.keys() & new.keys()
            got.update(new)
            stream.step()
    return got


class Topic:
    """A topic, and the messages that were written to it."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        place.admin.create_topics([NewTopic(name, 2, 1)])[name].result(120)
        self.producer = Producer({"bootstrap.servers": place.broker, "log_level": 3})
        self.classes = {v: classes(v) for v in (1, 2)}
        self.serializers = {v: ProtobufSerializer(c, place.schemas) for v, c in self.classes.items()}
        self.wanted: dict[int, dict[str, Any]] = {}

    def write(self, rng: random.Random, numbers: range) -> None:
        for number in numbers:
            version = rng.choice([1, 2])
            c = click(rng, self.classes[version], number, version)
            value = self.serializers[version](c, SerializationContext(self.name, MessageField.VALUE))
            assert value is not None
            self.wanted[number] = wanted(c)
            self.producer.produce(self.name, value)
        self.producer.flush(120)

    def spec(self, job: Any, end: str = "latest", on_error: str = "fail") -> str:
        spec = job.folder / "clicks.yaml"
        where = {"broker": self.place.broker, "topic": self.name, "registry": self.place.registry}
        spec.write_text(SPEC.format(**where, end=end, on_error=on_error))
        return str(spec)


def check(got: dict[int, dict[str, Any]], topic: Topic) -> None:
    assert got.keys() == topic.wanted.keys()
    for number, row in got.items():
        assert row == topic.wanted[number], number


def test_two_versions_of_a_message_give_the_fields_that_protobuf_has(job: Any, place: Place) -> None:
    topic = Topic(place, "messages")
    topic.write(seeded(), range(3000))
    spec = topic.spec(job)
    checked = job.headrace("check", "-f", spec)
    assert "3,000 records, 0 bad" in checked.stdout
    job.up()
    job.headrace("dataset", "apply", "-f", spec)
    peeked = json.loads(job.headrace("peek", "clicks", "-n", "1", "-o", "json").stdout)
    row = peeked["rows"][0] if isinstance(peeked, dict) else peeked[0]
    assert row["ms"] == topic.wanted[row["id"]]["ms"]
    check(trained(), topic)


def test_what_is_no_message_is_a_bad_record(job: Any, place: Place) -> None:
    topic = Topic(place, "bad-messages")
    rng = seeded()
    topic.write(rng, range(20))
    good = topic.serializers[1](topic.classes[1](id=1), SerializationContext(topic.name, MessageField.VALUE))
    assert good is not None
    topic.producer.produce(topic.name, good[:5] + b"\x02\x64")  # message 50 of the schema
    topic.producer.produce(topic.name, good[:5])
    topic.producer.produce(topic.name, good + b"\x0b")  # a group that does not end
    topic.write(rng, range(20, 40))
    job.up()
    job.headrace("dataset", "apply", "-f", topic.spec(job, on_error="skip"))
    check(trained(), topic)
    letters = job.headrace("deadletter", "list", "clicks", "-o", "json").stdout
    for why in ("no message with the number 50", "does not say which message it is", "the record ends here"):
        assert why in letters
