"""The format headrace on a real Spark, against the real binary: each row of a batch and of an
epoch comes once, whatever is killed, retried or repeated.

HEADRACE_SPARK is the version's Python and jar, as `make test-spark` sets them.
"""

# ruff: noqa: E501 (programs and tables)
from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import pytest
from agent import poll
from s3_server import Server

PYTHON, JAR = os.environ["HEADRACE_SPARK_PYTHON"], os.environ["HEADRACE_SPARK_JAR"]
TESTS_JAR = JAR.replace(".jar", "-tests.jar")
ROOT = Path(__file__).resolve().parents[3]

SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # a JVM that starts often and runs shortly

SPEC = """
name: clicks
landing: {end: pushed, partitions: 3, key: /user, chunk: 4KiB, retain: 0s}
decode:
  format: json
  columns:
    - {name: id, path: /id, dtype: int64}
"""

TRAINER = """
import headrace
with headrace.dataset("clicks").batches(500, max_wait=0.05) as stream:
    for b in stream:
        print(*b["id"].tolist(), flush=True)
        stream.step()
print("end", flush=True)
"""

# What all drivers begin with.
SESSION = """
import os, sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions as F, types as T
def session(master="local[2,4]", **settings):
    b = SparkSession.builder.master(master).appName("test").config("spark.jars", os.environ["JARS"])
    b = b.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "3").config("spark.driver.memory", "1g")
    b = b.config("spark.sql.codegen.wholeStage", "false").config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    for name, value in settings.items():
        b = b.config(name.replace("_", "."), value)
    spark = b.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
FORMAT = "io.github.headrace.spark.KillingSource" if os.environ.get("HEADRACE_TEST_KILL") else "headrace"
here = Path(os.environ["HERE"])
"""

BATCH = """
spark = session()
rows = spark.range(0, 2000, 1, 4).withColumn("user", F.col("id") % 7)
w = rows.write.format(FORMAT).mode("append").option("dataset", "clicks")
if len(sys.argv) > 1:
    w = w.option("transaction", sys.argv[1])
w.save()
print("done")
"""


@pytest.fixture
def landing(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPEC)
    job.up("-f", str(spec))
    return job


def drive(job: Any, code: str, *args: str, kill: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in job.env.items() if k != "SPARK_HOME"}
    env.update(JARS=f"{JAR},{TESTS_JAR}", HERE=str(job.folder), PYSPARK_PYTHON=PYTHON, HEADRACE_TEST_KILL=kill)
    env.update(SPARK_LOCAL_IP="127.0.0.1", JAVA_TOOL_OPTIONS=SMALL)
    done = subprocess.run(
        [PYTHON, "-c", SESSION + code, *args], env=env, cwd=job.folder, capture_output=True, text=True, timeout=800
    )
    print(done.stdout[-2000:], done.stderr[-6000:])
    assert not check or done.returncode == 0
    return done


def read(job: Any, trainer: Any) -> list[int]:
    """What the trainer got until the end of data."""
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    log = trainer.ended(300)
    assert log.endswith("end\n"), log
    return [int(n) for n in log.split()[:-1]]


def killed(done: subprocess.CompletedProcess[str]) -> None:
    """The JVM was killed, so Python lost it."""
    assert done.returncode != 0
    assert "done" not in done.stdout


def test_a_batch_comes_once(landing: Any) -> None:
    trainer = landing.trainer(TRAINER)
    killed(drive(landing, BATCH, "backfill", kill="before:0", check=False))  # all is staged
    killed(drive(landing, BATCH, "backfill", kill="after:0", check=False))  # it is visible
    drive(landing, BATCH, "backfill")  # and stays so
    drive(landing, BATCH, kill="twice:0")  # without an id: another write
    assert Counter(read(landing, trainer)) == Counter(dict.fromkeys(range(2000), 2))


UPLOAD = """
spark = session()
rows = spark.range(0, 2000, 1, 4).withColumn("user", F.col("id") % 7)
rows.write.format(FORMAT).mode("append").option("dataset", "clicks").option("upload", "true").option("transaction", "up").save()
print("done")
"""


def test_tasks_put_their_chunks_into_the_bucket_themselves(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their own keys: the master's are right, and with wrong ones the tasks fail."""
    prefix = f"spark-{job.folder.name}"
    job.env.update(server.env, HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}")
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    (job.folder / "clicks.yaml").write_text(SPEC.replace("retain: 0s", "retain: 1h"))
    job.up("-f", str(job.folder / "clicks.yaml"))
    before = server.list(prefix)
    job.env["AWS_SECRET_ACCESS_KEY"] = "not the secret key"
    refused = drive(job, UPLOAD, check=False)
    killed(refused)
    assert "the service answers 403" in refused.stderr
    assert server.list(prefix) == before
    job.env.update(server.env)
    trainer = job.trainer(TRAINER)
    killed(drive(job, UPLOAD, kill="before:0", check=False))
    drive(job, UPLOAD)
    drive(job, UPLOAD)
    assert len(server.list(prefix)) > len(before) + 4
    assert sorted(read(job, trainer)) == list(range(2000))


FAILING = """
spark = session("local[2,4]")
def fails_twice(id):
    # In the middle of each task, after rows have been staged.
    if id % 500 == 400 and TaskContext.get().attemptNumber() < 2:
        (here / f"failed-{id}-{TaskContext.get().attemptNumber()}").touch()
        raise RuntimeError("this attempt fails")
    return id
fails = F.udf(fails_twice, T.LongType())
rows = spark.range(0, 2000, 1, 4).withColumn("user", F.col("id") % 7).withColumn("id", fails("id")).withColumn("pad", F.expr("uuid()"))
rows.write.format("headrace").mode("append").save("clicks")
print("done")
"""


def test_tasks_that_fail_twice_add_nothing(landing: Any) -> None:
    trainer = landing.trainer(TRAINER)
    drive(landing, FAILING)
    assert len(list(landing.folder.glob("failed-*"))) == 8
    assert sorted(read(landing, trainer)) == list(range(2000))


SPECULATING = """
spark = session(sys.argv[1], spark_speculation="true", spark_speculation_interval="50ms", spark_speculation_quantile="0.5",
    spark_speculation_multiplier="1.1", spark_speculation_minTaskRuntime="50ms", spark_executor_memory="512m", spark_cores_max="2", spark_executor_cores="1")
def slow_once(id):
    # In the middle of the first task, after rows have been staged. Its first attempt waits for
    # the second one to come as far; then both go on.
    if id == 400:
        attempt = TaskContext.get().attemptNumber()
        (here / f"attempt-{attempt}").touch()
        while attempt == 0 and not (here / "attempt-1").exists():
            time.sleep(0.01)
    return id
slow = F.udf(slow_once, T.LongType())
rows = spark.range(0, 2000, 1, 4).withColumn("user", F.col("id") % 7).withColumn("id", slow("id")).withColumn("pad", F.expr("uuid()"))
rows.write.format("headrace").mode("append").save("clicks")
print("done")
"""


@pytest.fixture
def two_hosts(landing: Any) -> str:
    """A standalone Spark with two workers. Spark starts a speculative task on another host only, so each has an address of its own."""
    env = {
        **landing.env,
        "PYSPARK_PYTHON": PYTHON,
        "JAVA_TOOL_OPTIONS": SMALL,
        "SPARK_WORKER_DIR": str(landing.folder / "work"),
    }
    spark_class = Path(PYTHON).parent / "spark-class"

    def start(name: str, *args: str) -> Path:
        log = landing.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [spark_class, f"org.apache.spark.deploy.{args[0]}", *args[1:]], env=env, stdout=out, stderr=out
            )
        landing.processes.append(process)
        return log

    def says(log: Path, pattern: str) -> str:
        deadline = time.monotonic() + 200  # only ends a hang
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return found[0]

    master = start("spark-master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    url = says(master, r"spark://127\.0\.0\.1:[1-9]\d*")
    says(master, "I have been elected leader")
    for host in ("127.0.0.2", "127.0.0.3"):
        log = start(
            f"worker-{host}",
            "worker.Worker",
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            url,
        )
        says(log, "Successfully registered with master")
    return url


def test_a_speculative_task_adds_nothing(landing: Any, two_hosts: str) -> None:
    trainer = landing.trainer(TRAINER)
    drive(landing, SPECULATING, two_hosts)
    assert {p.name for p in landing.folder.glob("attempt-*")} == {"attempt-0", "attempt-1"}
    assert sorted(read(landing, trainer)) == list(range(2000))


STREAM = """
spark = session()
rows = spark.readStream.schema("id LONG, user LONG").option("maxFilesPerTrigger", 1).json(str(here / "in"))
query = (rows.repartition(3).writeStream.format(FORMAT).option("dataset", "clicks")
    .option("checkpointLocation", str(here / "checkpoint")).trigger(availableNow=True).start())
query.awaitTermination()
print("done")
"""


def put(job: Any, name: str, start: int, stop: int) -> None:
    (job.folder / "in").mkdir(exist_ok=True)
    text = "".join(json.dumps({"id": i, "user": i % 7}) + "\n" for i in range(start, stop))
    part = job.folder / f".{name}"
    part.write_text(text)
    part.rename(job.folder / "in" / f"{name}.json")


def test_each_epoch_of_a_stream_comes_once(landing: Any) -> None:
    trainer = landing.trainer(TRAINER)
    for n in range(5):
        put(landing, f"a{n}", 100 * n, 100 * (n + 1))
    killed(drive(landing, STREAM, kill="before:2", check=False))  # 0 and 1 are visible; 2 is staged
    killed(drive(landing, STREAM, kill="after:2", check=False))  # 2 is visible, and Spark does not know it
    drive(landing, STREAM, kill="twice:3")
    put(landing, "b", 500, 600)
    drive(landing, STREAM)
    assert sorted(read(landing, trainer)) == list(range(600))


def test_a_stream_that_uploads_goes_on_after_a_rewind(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch 2 lies in the bucket, uncommitted, when the job goes back to its start; epoch 3 is made after it."""
    job.env.update(server.env, HEADRACE_LANDING_STORAGE=f"s3://lake/stream-{job.folder.name}")
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    (job.folder / "clicks.yaml").write_text(SPEC.replace("retain: 0s", "retain: 1h"))
    job.up("-f", str(job.folder / "clicks.yaml"))
    stream = STREAM.replace('.option("dataset", "clicks")', '.option("dataset", "clicks").option("upload", "true")')
    for n in range(4):
        put(job, f"a{n}", 100 * n, 100 * (n + 1))
    trainer = job.trainer(TRAINER)
    killed(drive(job, stream, kill="before:2", check=False))

    def seen() -> list[int]:
        return [int(n) for n in trainer.log.read_text().rpartition("\n")[0].split()]

    poll(lambda: len(seen()) >= 200)
    assert len(set(seen())) == len(seen()) == 200  # two of the four files
    trainer.process.terminate()
    trainer.ended()
    job.headrace("rewind", "default", "--to", "start", "--yes")

    trainer = job.trainer(TRAINER)
    killed(drive(job, stream, kill="after:2", check=False))
    put(job, "b", 400, 500)
    drive(job, stream)
    assert sorted(read(job, trainer)) == list(range(500))


TYPES = """
spark = session()
from datetime import date, datetime
from decimal import Decimal
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
schema = ("b BOOLEAN, y BYTE, s SHORT, i INT, id LONG, f FLOAT, d DOUBLE, m DECIMAL(20,3), t STRING, x BINARY, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, list ARRAY<INT>, inner STRUCT<a: INT, `b c`: STRING>, dict MAP<STRING, DOUBLE>, none STRING")
at = datetime.fromisoformat("2026-01-31T12:00:00.000123+00:00")
rows = [
    (True, 1, 2, 3, 9223372036854775807, 0.5, 1e300, Decimal("12345678901234567.250"), 'a "b"\\\\ \\n \\u00e4\\U0001f600', b"\\x00\\xff", date(1969, 12, 31), at,
     datetime(2026, 1, 31, 12, 0), [1, None, 3], (1, "x"), {"k": 0.5}, None),
    (None,) * 17,
    (False, -1, -2, -3, 4, float("nan"), float("-inf"), Decimal("0.001"), "", b"", date(2026, 1, 31), datetime.fromisoformat("1969-12-31T23:59:59.999999+00:00"),
     datetime(1969, 12, 31, 23, 59, 59), [], (None, None), {"n": float("nan")}, "z"),
]
w = spark.createDataFrame(rows, schema).coalesce(1).write.format("headrace").mode("append")
w.save("raw")
w.option("value", "x").option("key", "t").option("time", "at").save("raw") if len(sys.argv) > 1 else None
for options in ({}, {"dataset": "raw", "datset": "raw"}, {"dataset": "nothere"}, {"dataset": "raw", "value": "nothere"}, {"dataset": "raw", "value": "i"},
                {"dataset": "raw", "time": "i"}, {"dataset": "raw", "token": "a-token-that-nobody-knows"}, {"dataset": "raw", "patience": "x"},
                {"dataset": "raw", "patience": "NaN"}):
    try:
        spark.createDataFrame(rows, schema).write.format("headrace").mode("append").options(**options).save()
        print("no error", options)
    except Exception as e:
        print("ERROR", " ".join(str(e).split())[:600])
try:
    spark.sql("SELECT INTERVAL 1 DAY AS days").write.format("headrace").mode("append").save("raw")
except Exception as e:
    print("ERROR", " ".join(str(e).split())[:600])
print("done")
"""

RAW = """
name: raw
landing: {end: pushed, retain: 0s}
decode:
  format: lines
"""

LINES = """
import headrace, sys
with headrace.dataset("raw").batches(1, max_wait=0.05) as stream:
    for b in stream:
        print(*[bytes(v).decode() for v in next(iter(b.values()))] if hasattr(b, "values") else b, flush=True)
        stream.step()
print("end", flush=True)
"""


def test_rows_become_json_and_options_are_checked(landing: Any) -> None:
    spec = landing.folder / "raw.yaml"
    spec.write_text(RAW)
    landing.headrace("apply", "-f", str(spec))
    out = drive(landing, TYPES).stdout
    errors = [line for line in out.splitlines() if line.startswith("ERROR")]
    assert "no error" not in out
    for text in ["option dataset is missing", "option datset is not known", 'no dataset "nothere" was applied', "there is no column nothere",
                 "column i is int, and it must be string or binary", "column i is int, and it must be a timestamp", "it wants a token",
                 '"x" is not a number of seconds', '"NaN" is not a number of seconds', "column days is interval day"]:  # fmt: skip
        assert any(text in e for e in errors), (text, errors)
    with headrace.Pusher("raw") as pusher:
        pusher.end()
    log = landing.trainer(LINES).ended()
    got = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert got == [
        {"b": True, "y": 1, "s": 2, "i": 3, "id": 9223372036854775807, "f": 0.5, "d": 1e300, "m": 12345678901234567.250,
         "t": 'a "b"\\ \n ä😀', "x": "AP8=", "day": "1969-12-31", "at": "2026-01-31T12:00:00.000123Z", "local": "2026-01-31T12:00:00",
         "list": [1, None, 3], "inner": {"a": 1, "b c": "x"}, "dict": {"k": 0.5}},
        {},
        {"b": False, "y": -1, "s": -2, "i": -3, "id": 4, "m": 0.001, "t": "", "x": "", "day": "2026-01-31",
         "at": "1969-12-31T23:59:59.999999Z", "local": "1969-12-31T23:59:59", "list": [], "inner": {}, "dict": {"n": None}, "none": "z"},
    ], log  # fmt: skip


WAITING = """
spark = session()
spark.sparkContext.setLogLevel("WARN")
spark.range(1).write.format("headrace").mode("append").save("clicks")
"""


def test_the_log_says_why_a_write_waits(landing: Any) -> None:
    env = {k: v for k, v in landing.env.items() if k != "SPARK_HOME"}
    env.update(JARS=JAR, HERE=str(landing.folder), PYSPARK_PYTHON=PYTHON, SPARK_LOCAL_IP="127.0.0.1")
    env.update(JAVA_TOOL_OPTIONS=SMALL, HEADRACE_STATE=str(landing.folder / "nobody"))
    log = landing.folder / "waiting.log"
    with log.open("wb") as out:
        driver = subprocess.Popen([PYTHON, "-c", SESSION + WAITING], env=env, cwd=landing.folder, stdout=out, stderr=out)
    landing.processes.append(driver)
    poll(lambda: "no master has left its address in" in log.read_text() or driver.poll() is not None)
    assert "pushing to dataset clicks of the master of" in log.read_text(), log.read_text()


def test_the_programs_of_the_page_run(landing: Any) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(programs) == 2
    trainer = landing.trainer(TRAINER)
    put(landing, "a", 0, 100)
    submit = Path(PYTHON).parent / "spark-submit"
    env = {**landing.env, "PYSPARK_PYTHON": PYTHON, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": SMALL}
    env["PATH"] = f"{Path(PYTHON).parent}:{env['PATH']}"
    for n, program in enumerate(programs):
        script = landing.folder / f"program-{n}.py"
        script.write_text(program)
        done = subprocess.run(
            [submit, "--master", "local[2]", "--jars", JAR, script],
            env=env, cwd=landing.folder, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
        print(done.stderr[-6000:])
        assert done.returncode == 0
    assert Counter(read(landing, trainer)) == Counter(dict.fromkeys(range(100), 2))
