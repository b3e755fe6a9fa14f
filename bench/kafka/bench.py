"""Kafka to numpy batches: headrace and two ways of confluent-kafka, in one run.

    python -m bench.kafka.bench [--records 1000000] [--rounds 3] [--only floats,tsv,json]

(--records is the number for tsv; floats have twice as many, json half as many.)

It starts one real broker (internal/proof/testbroker) with three topics of four partitions. They are
written once, uncompressed, in batches of 1,000 records: `floats` (125 float32, 500 bytes), and `tsv`
and `json`, the records of bench-decode. readers.py says what each reader does. First it checks that
headrace and the best of the others read the same. Then they take turns within a round, each in its
own process. Ratios are taken within a round, so that other work on the machine disturbs both sides
alike. It prints progress, and one JSON object on the last line.

`headrace` is measured end to end: `headrace up`, leases, acks, socket, and `stream.step()` for each
batch in a trainer process. `all_cpu` is the CPU of its trainer and `up` together; the others have
only one process. The broker's work is the same for all. It is not counted, but it shares the cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import clicks, running
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "kafka"
FORMS = ("floats", "tsv", "json")
READERS = ("ordinary", "tuned", "headrace")
PARTITIONS = 4
PRODUCED_AT_ONCE = 1000
SHARE = {"floats": 2, "tsv": 1, "json": 0.5}  # of --records: each takes about a second to read, all of it two minutes
ORDINARY = {"floats": 1_000_000, "tsv": 200_000, "json": 100_000}  # records for the ordinary reader, which is slow
Figures = dict[str, float]


def spec(form: str, address: str) -> str:
    head = f'name: {form}\nkafka: {{brokers: ["{address}"], topic: {form}}}\n'
    if form == "floats":
        return head + "decode: {format: binary, columns: [{name: x, dtype: float32, shape: [125]}]}\n"
    return head + clicks.decode(form)


def values(form: str, records: int) -> Iterator[bytes]:
    if form == "floats":
        import numpy as np

        rng = np.random.default_rng(1)
        for begin in range(0, records, 10_000):
            block = rng.random((min(10_000, records - begin), 125), np.float32)
            for row in block:
                yield row.tobytes()
        return
    path = WORK / f"clicks.{form}"
    args = [str(WORK / "decode"), "generate", "-format", form, "-records", str(records), str(path)]
    subprocess.run(args, check=True)
    with path.open("rb") as lines:
        for line in lines:
            yield line.rstrip(b"\n")
    path.unlink()


def write(form: str, broker: str, records: int) -> None:
    """One topic, whole batches to its partitions in turn."""
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(form, PARTITIONS, 1)
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([topic])[form].result(30)
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "linger.ms": 100,
            "batch.num.messages": PRODUCED_AT_ONCE,
            "batch.size": 4 << 20,
            "message.max.bytes": 4 << 20,
            "queue.buffering.max.messages": 100_000,
            "enable.idempotence": True,
            "log_level": 3,  # its coordinator is loading at first, of which it warns
        }
    )
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    for i, value in enumerate(values(form, records)):
        partition = i // PRODUCED_AT_ONCE % PARTITIONS
        while True:
            try:
                producer.produce(form, value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if i % PRODUCED_AT_ONCE == 0:
            producer.poll(0)
    if producer.flush(60) or failed:
        raise SystemExit(f"writing the topic {form}: {failed[:1]}")


def reader(which: str, form: str, broker: str, records: int, *check: str, **env: str) -> Figures:
    args = [sys.executable, str(HERE / "readers.py"), which, form, broker, str(records), *check]
    out = subprocess.run(
        args, check=True, stdout=subprocess.PIPE, text=True, timeout=300, env=running.environment(**env)
    )
    got: Figures = json.loads(out.stdout.splitlines()[-1])
    got["all_cpu_seconds"] = got["cpu_seconds"]
    return got


def headrace(form: str, broker: str, records: int, *check: str) -> Figures:
    """One pass of a fresh `headrace up`."""
    with running.up(WORK / f"up-{form}.log", spec(form, broker)) as up:
        before = up.cpu()
        got = reader("headrace", form, broker, records, *check, HEADRACE_AGENT=up.socket)
        got["all_cpu_seconds"] += up.cpu() - before
        return got


def one_round(form: str, broker: str, records: int) -> dict[str, Figures]:
    got: dict[str, Figures] = {}
    for which in READERS:
        want = min(records, ORDINARY[form]) if which == "ordinary" else records
        if which == "headrace":
            got[which] = headrace(form, broker, want)
        else:
            got[which] = reader(which, form, broker, want)
        if not want <= got[which]["rows"] < want + 50_000:
            raise SystemExit(f"{which} read {got[which]['rows']} of {want} records")
    return got


def same_records(form: str, broker: str, records: int) -> None:
    """Checks that headrace and librdkafka read the same, by number and sum. It is also a warm-up."""
    ours, theirs = headrace(form, broker, records, "check"), reader("tuned", form, broker, records, "check")
    if ours["rows"] != theirs["rows"] or abs(ours["checksum"] - theirs["checksum"]) > 1e-9 * theirs["checksum"]:
        raise SystemExit(f"headrace read other records than librdkafka: {ours}, {theirs}")


def figures(rounds: list[dict[str, Figures]]) -> dict[str, list[float]]:
    def each(name: str, top: str, bottom: str) -> list[float]:
        return [r[name][top] / r[name][bottom] for r in rounds]

    def over(other: str, top: str, bottom: str) -> list[float]:
        ours, theirs = each("headrace", top, bottom), each(other, top, bottom)
        return spread([a / b for a, b in zip(ours, theirs)])

    out: dict[str, list[float]] = {}
    out["vs_ordinary"] = over("ordinary", "rows", "seconds")
    out["vs_tuned"] = over("tuned", "rows", "seconds")
    out["trainer_cpu_of_ordinary"] = over("ordinary", "cpu_seconds", "rows")
    out["trainer_cpu_of_tuned"] = over("tuned", "cpu_seconds", "rows")
    out["all_cpu_of_ordinary"] = over("ordinary", "all_cpu_seconds", "rows")
    out["all_cpu_of_tuned"] = over("tuned", "all_cpu_seconds", "rows")
    for name in reversed(READERS):
        out[f"{name}_records_per_s"] = spread(each(name, "rows", "seconds"))
        out[f"{name}_trainer_cpu_s_per_million"] = spread([1e6 * v for v in each(name, "cpu_seconds", "rows")])
        out[f"{name}_all_cpu_s_per_million"] = spread([1e6 * v for v in each(name, "all_cpu_seconds", "rows")])
        out[f"{name}_cores"] = spread(each(name, "all_cpu_seconds", "seconds"))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="of tsv; floats have twice and json half as many"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(FORMS), help="topics, comma-separated")
    args = parser.parse_args()
    forms = args.only.split(",")
    running.prepare(WORK, HERE / "requirements.txt", "./bench/decode", "./internal/proof/testbroker/broker-kafka")
    result: dict[str, object] = {"records": args.records, "rounds": args.rounds, "partitions": PARTITIONS}
    with running.broker(WORK) as broker:
        for form in forms:
            began = time.monotonic()
            records = int(args.records * SHARE[form])
            write(form, broker, records)
            say(f"{form}: wrote {records:,} records in {time.monotonic() - began:.0f} s")
            same_records(form, broker, records)
            rounds = []
            for i in range(args.rounds):
                rounds.append(one_round(form, broker, records))
                last = ", ".join(f"{n} {f['rows'] / f['seconds'] / 1e6:.2f}" for n, f in rounds[-1].items())
                say(f"{form} round {i + 1} of {args.rounds}, million records/s: {last}")
            result.update({f"{form}_{name}": value for name, value in figures(rounds).items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
