"""examples/server: all processes are killed, and the model has each record once.

make test-quickstart
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace"))
HERE = ROOT / "examples" / "server"
RECORDS, KILLS = 12_000, 14
SECONDS = 240  # without progress; then it hangs

# It learns some batches, and is killed before it steps the last one.
UNSTEPPED = f"""
import os, signal, sys
sys.path.insert(0, {str(HERE)!r})
import headrace, train
server = train.Server("server.sock")
stream = headrace.dataset("numbers").batches(100)
for n, batch in enumerate(stream):
    claim = stream.claim(batch)
    reply = server.ask({{"claim": claim.data(), "gradient": [0, 0], "ids": batch["id"].tolist()}})
    assert not reply["missing"]["takes"]
    if n == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    stream.step()
"""


def free_port() -> int:
    """A free port for a master that starts again, below those that the system gives to connections."""
    while True:
        port = random.randrange(12_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Job:
    """A master, an agent, a server and three trainers, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.address = f"127.0.0.1:{free_port()}"
        self.env.update(HEADRACE_STATE=str(folder / "state"), HEADRACE_AGENT=str(folder / "a.sock"))
        self.env.update(HEADRACE_MASTER=self.address, HEADRACE_WORLD_SIZE="3")
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        data = folder / "data"
        data.mkdir()
        for f in range(4):
            rows = range(f, RECORDS, 4)
            (data / f"{f}.tsv").write_text("".join(f"{i}\t{i % 100 / 100}\t{i % 100 / 50 + 1}\n" for i in rows))
        (folder / "numbers.yaml").write_text((HERE / "numbers.yaml").read_text())
        for name in ("master", "agent", "server"):
            self.start(name)
        self.until(lambda: (folder / "server.sock").exists() and self.command("apply", "-f", "numbers.yaml"))

    def start(self, name: str, code: str = "") -> None:
        """name: master, agent, server, or a trainer's rank."""
        allow = ["--allow-root", str(self.folder)]
        commands = {
            "master": [BINARY, "master", "--listen", self.address, "--http", "off", "--session-ttl", "20s", *allow],
            "agent": [BINARY, "agent", "--name", "a", "--socket", self.env["HEADRACE_AGENT"], *allow],
            "server": [sys.executable, HERE / "server.py"],
        }
        trainer = (
            [sys.executable, HERE / "train.py", "--rows", str(50 + 7 * int(name)), "--pause", "0.01"]
            if (name.isdigit())
            else []
        )
        if code:
            trainer = [sys.executable, "-c", code]
        env = self.env if not name.isdigit() else {**self.env, "HEADRACE_RANK": name}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(part) for part in commands.get(name) or trainer], cwd=self.folder, env=env, stdout=log, stderr=log
            )

    def command(self, *args: str) -> bool:
        run = subprocess.run([str(BINARY), *args], cwd=self.folder, env=self.env, capture_output=True, timeout=300)
        return run.returncode == 0

    def until(self, there: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not there():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.02)

    def logs(self) -> str:
        return "".join(f"\n--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running[name].wait()

    def entries(self) -> dict[int, int]:
        """How often the model has learned each record, from the server's file."""
        with contextlib.closing(sqlite3.connect(self.folder / "model.db", timeout=300)) as file:
            return dict(file.execute("SELECT id, learned FROM entries"))

    def refused(self) -> int:
        with contextlib.closing(sqlite3.connect(self.folder / "model.db", timeout=300)) as file:
            return int(file.execute("SELECT refused FROM model").fetchone()[0])

    def trained(self, ranks: list[str]) -> bool:
        """Starts again each process that was killed. True: all trainers were told the end of data."""
        for rank in ranks:
            code = self.running[rank].poll()
            if code:  # it was killed, its watchdog ended it, or it found no agent
                assert code < 0 or self.found_no_agent(rank), self.logs()
                self.start(rank)
        return all(self.running[rank].poll() == 0 for rank in ranks)


    def found_no_agent(self, rank: str) -> bool:
        """A launcher may start a trainer and its agent at the same time; then the trainer finds no agent."""
        last = (self.folder / f"{rank}.log").read_text().splitlines()[-1]
        return last.startswith("headrace._errors.AgentUnavailable: no agent answers")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    try:
        yield job
    finally:
        for process in job.running.values():
            process.kill()
            process.wait()


def once(job: Job) -> None:
    """The judge: for every record, how often the model has it."""
    entries = job.entries()
    assert Counter(entries.values()) == {1: RECORDS}, job.logs()
    assert sorted(entries) == list(range(RECORDS)), job.logs()


@pytest.mark.timeout(10 * SECONDS)
def test_a_server_that_stores_claims_has_each_record_once_whatever_is_killed(job: Job) -> None:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    rng = random.Random(seed)
    ranks = ["0", "1", "2"]
    for rank in ranks:
        job.start(rank)
    # Each kind of process, and some together, each kill at another share of the input.
    victims = [["server"], ["agent"], ["master"], ["0", "agent"], ["server", "1"], ["agent", "master", "server", "2"]]
    victims += [[rng.choice(ranks)] for _ in range(4)]
    victims += [rng.sample(["server", "agent", "master", *ranks], rng.randint(1, 4)) for _ in range(KILLS - 10)]
    rng.shuffle(victims)
    for n, names in enumerate(victims):
        share = RECORDS * (n + 1) // (KILLS + 3)
        job.until(lambda share=share: job.trained(ranks) or len(job.entries()) >= share)
        time.sleep(rng.uniform(0, 0.02))  # at any point of a batch
        job.kill(*names)
        for name in names:
            job.start(name)
    job.until(lambda: job.trained(ranks))
    once(job)
    print(f"{job.refused()} updates were refused, because the model had their records already")


@pytest.mark.timeout(10 * SECONDS)
def test_a_batch_that_was_learned_and_not_stepped_comes_again_and_is_refused(job: Job) -> None:
    job.start("0", UNSTEPPED)
    assert job.running["0"].wait(SECONDS) == -9, job.logs()
    assert len(job.entries()) == 600
    job.start("1")  # its batches have another number of rows
    job.until(lambda: job.trained(["1"]))
    assert job.refused() > 0
    once(job)
