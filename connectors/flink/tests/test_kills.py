"""A Flink job with a checkpoint every 500 ms: its JVM is killed ten times and the master five times, it goes on from
its last checkpoint, and from savepoints with other parallelisms. Two trainers have each record once. The job goes on
until all that is done. Its chunks go to the master, or straight into the bucket of a real S3 server.

HEADRACE_SEED draws the same order of kills again.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
from ports import free_port
from s3_server import Server

CLASS_PATH = os.environ["HEADRACE_FLINK_CLASS_PATH"]
PER_SECOND = 500
SECOND = 1 << 40  # the first number of the second split, as in KilledJob

SPEC = """
name: numbers
landing: {end: pushed, partitions: 3, retain: 0s}
decode:
  format: json
  columns:
    - {name: n, path: /n, dtype: int64}
"""

TRAINER = """
import headrace, sys
with open(sys.argv[1], "a") as journal, headrace.dataset("numbers").batches(500, max_wait=0.05) as stream:
    for b in stream:
        stream.step()
        print(*b["n"].tolist(), file=journal, flush=True)
"""

OPENS = ["java.base/java.lang", "java.base/java.util", "java.base/java.net", "java.base/java.time"]


def await_(what: str, reached: Callable[[], Any], job: Any, seconds: float = 900) -> Any:
    deadline = time.monotonic() + seconds  # only ends a hang
    while True:
        found = reached()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: {job.logs()[-12000:]}"
        time.sleep(0.02)


class Flink:
    """The job's JVM, and what it can go on from."""

    def __init__(self, job: Any, upload: bool) -> None:
        self.job = job
        self.upload = upload
        self.checkpoints = job.folder / "checkpoints"
        self.savepoints = job.folder / "savepoints"
        self.parallelism = 2
        self.starts = 0
        self.process: subprocess.Popen[str] | None = None

    def complete(self) -> list[Path]:
        """Checkpoints and savepoints, the newest last."""
        found: list[tuple[int, Path]] = []
        for metadata in [*self.checkpoints.glob("*/chk-*/_metadata"), *self.savepoints.glob("*/_metadata")]:
            try:
                found.append((metadata.stat().st_mtime_ns, metadata.parent))
            except FileNotFoundError:
                continue  # a newer one has taken its place
        return [path for _, path in sorted(found)]

    def start(self) -> None:
        newest = self.complete()[-1:]
        self.starts += 1
        self.log = self.job.folder / f"flink-{self.starts}.log"
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENS]
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opens, "-cp", CLASS_PATH]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "io.github.headrace.flink.KilledJob"]
        command += [self.job.env["HEADRACE_STATE"], str(self.checkpoints), str(PER_SECOND)]
        command += [str(self.parallelism), str(self.upload).lower(), str(newest[0]) if newest else ""]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, env=self.job.env
            )
        self.job.processes.append(self.process)

    def next_checkpoint(self) -> None:
        """One that completes from now on."""
        before = set(self.complete())

        def one() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the job ended early: {self.log.read_text()[-8000:]}"
            return bool(set(self.complete()) - before)

        await_("a checkpoint", one, self.job)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._gone()

    def _gone(self) -> None:
        assert self.process is not None
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _stopped(self, order: str, word: str) -> list[str]:
        """Gives the order, and what the job says when it has ended."""
        assert self.process is not None
        assert self.process.stdin is not None
        process = self.process
        print(order, self.savepoints, file=self.process.stdin, flush=True)
        await_(word, lambda: process.poll() is not None, self.job)
        self._gone()
        said = [line.split() for line in self.log.read_text().splitlines() if line.startswith(word + " ")]
        assert len(said) == 1, self.log.read_text()[-8000:]
        return said[0]

    def stop_with_savepoint(self) -> None:
        self._stopped("savepoint", "SAVEPOINT")

    def end(self) -> tuple[int, int]:
        """Ends the job's input. The last number of each split."""
        said = self._stopped("end", "ENDED")
        return int(said[2]), int(said[3])


class Master:
    def __init__(self, job: Any) -> None:
        self.job = job
        self.listen = f"127.0.0.1:{free_port()}"
        self.begin()

    def begin(self) -> None:
        self.process = self.job.start("master", "--http", "off", "--listen", self.listen, "--session-ttl", "20s")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.timeout(2400)
def test_each_record_comes_once_through_kills_of_job_and_master(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    each_record_comes_once(job, monkeypatch, upload=False)


@pytest.mark.timeout(2400)
def test_chunks_that_tasks_put_into_a_bucket_come_once_through_the_same_kills(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"kills-{job.folder.name}"
    job.env.update(server.env, HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}")
    each_record_comes_once(job, monkeypatch, upload=True)


def each_record_comes_once(job: Any, monkeypatch: pytest.MonkeyPatch, upload: bool) -> None:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    rng = random.Random(seed)
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    master = Master(job)
    spec = job.folder / "numbers.yaml"
    spec.write_text(SPEC)
    address = Path(job.env["HEADRACE_STATE"]) / "master.addr"
    await_("the master", address.exists, job)
    job.headrace("apply", "-f", str(spec))
    job.await_socket(job.start("agent", "--name", "a1", "--socket", job.socket))
    journals = [job.folder / f"journal-{i}" for i in range(2)]
    trainers = [job.helper(TRAINER, str(journal)) for journal in journals]

    flink = Flink(job, upload)
    flink.start()
    kills = ["job"] * 10 + ["master"] * 5
    rng.shuffle(kills)
    kills[5:5] = ["savepoint"]
    kills[11:11] = ["savepoint"]
    for n, what in enumerate(kills):
        flink.next_checkpoint()
        time.sleep(rng.random() * 0.6)  # so that a kill falls anywhere between two checkpoints
        print(f"{n}: {what}, with {len(flink.complete())} checkpoints to go on from", flush=True)
        if what == "master":
            master.kill()
            time.sleep(rng.random())
            master.begin()
        elif what == "job":
            flink.kill()
            flink.start()
        else:
            flink.stop_with_savepoint()
            flink.parallelism = {2: 3, 3: 1}[flink.parallelism]
            flink.start()
    flink.next_checkpoint()
    flink.stop_with_savepoint()
    flink.parallelism = 2  # each has a split again
    flink.start()
    flink.next_checkpoint()  # all its tasks run
    last = flink.end()

    with headrace.Pusher("numbers") as pusher:
        pusher.end()
    for trainer in trainers:
        trainer.ended(900)
    trained = Counter(int(n) for journal in journals for n in journal.read_text().split())
    print(f"{len(trained)} records, the last are {last}; {flink.starts} starts of the job")
    given = [*range(last[0] + 1), *range(SECOND, last[1] + 1)]
    assert [n for n in given if trained[n] != 1] == []
    assert len(trained) == len(given)
