"""Starts and measures the processes of the benchmarks: brokers, `headrace up`, CPU time."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace"))


def say(text: str) -> None:
    print(text, flush=True)


def prepare(work: Path, requirements: Path, *go: str) -> None:
    """Makes the working folder, builds Go programs into it, and installs Python packages."""
    if not BINARY.exists():
        raise SystemExit(f"{BINARY} is missing: run make build")
    work.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "-r", str(requirements)]
    subprocess.run(pip, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    subprocess.run(["go", "build", "-o", f"{work}/", *go], check=True, cwd=ROOT)


def environment(**more: str) -> dict[str, str]:
    """For readers: at import, BLAS of numpy would start threads that spin for a while, and disturb what is
    measured then."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", **more}


class Up(NamedTuple):
    """A `headrace up`."""

    pid: int
    socket: str
    folder: Path  # its state is in it

    def cpu(self) -> float:
        """CPU seconds of master and agent so far."""
        return cpu_of(self.pid)

    def most_mib(self) -> float:
        """The most memory that was ever resident, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:", 1)[1].split()[0]) / 1024


@contextmanager
def up(log: Path, *specs: str, more: tuple[str, ...] = ()) -> Iterator[Up]:
    """A fresh `headrace up` in a folder of its own, with datasets."""
    with tempfile.TemporaryDirectory(prefix="hr-") as name, log.open("w") as out:
        folder = Path(name)
        socket = folder / "agent.sock"
        args = [str(BINARY), "up", "--state", f"{folder}/state", "--socket", str(socket)]
        args += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *more]
        (folder / "datasets.yaml").write_text("---\n".join(specs))
        args += ["-f", f"{folder}/datasets.yaml"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        process = subprocess.Popen(args, stdout=out, stderr=out, env=env)
        try:
            deadline = time.monotonic() + 20
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"`headrace up` did not start; see {log}")
                time.sleep(0.01)
            yield Up(process.pid, str(socket), folder)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def broker(work: Path, *more: str) -> Iterator[str]:
    """Starts a Kafka (./internal/proof/testbroker/broker-kafka, built into work), gives its address, and
    ends it."""
    with (work / "broker.log").open("w") as log:
        process = subprocess.Popen([str(work / "broker-kafka"), *more], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit(f"the Kafka broker did not start; see {log.name}")
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process and its threads have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interval(values: list[float], draws: int = 10_000) -> list[float]:
    """The interval that holds the median of the distribution of these values, with 95 %."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(draws))
    return [round(medians[int(draws * q)], 4) for q in (0.025, 0.975)]


def spread(values: list[float]) -> list[float]:
    """Median, min and max, to three digits."""
    return [float(f"{v:.3g}") for v in (statistics.median(values), min(values), max(values))]
