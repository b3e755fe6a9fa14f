"""A Kafka and a schema registry for the tests."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient

ROOT = Path(__file__).parents[3]


class Place(NamedTuple):
    broker: str
    registry: str
    registry_pid: int
    admin: AdminClient
    schemas: SchemaRegistryClient


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A Kafka and a registry of our own."""
    folder = tmp_path_factory.mktemp("servers")
    processes, said = [], []
    try:
        for name in ("broker-kafka", "server-registry"):
            package = f"./internal/proof/testbroker/{name}"
            subprocess.run(["go", "build", "-o", folder / name, package], check=True, cwd=ROOT)
            with (folder / f"{name}.log").open("w") as log:
                processes.append(subprocess.Popen([folder / name], stdout=subprocess.PIPE, stderr=log, text=True))
        for process in processes:
            assert process.stdout
            line = process.stdout.readline().split()
            assert line, "".join(p.read_text() for p in folder.glob("*.log"))
            said.append(line)
        admin = AdminClient({"bootstrap.servers": said[0][0]})
        with SchemaRegistryClient({"url": said[1][0]}) as schemas:
            yield Place(said[0][0], said[1][0], int(said[1][1]), admin, schemas)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(300)
            assert process.stdout
            process.stdout.close()


def seeded() -> random.Random:
    seed = int(os.environ.get("HEADRACE_SEED") or random.getrandbits(32))
    print("HEADRACE_SEED", seed)
    return random.Random(seed)
