"""A real S3 server for tests (versitygw, built once from its module)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


class Server:
    """An S3 server with the bucket `lake`."""

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.env = dict(line.rstrip("\n").split("=", 1) for line in iter(self.process.stdout.readline, "\n") if line)

    def put(self, key: str, file: Path) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("put", f"lake/{key}", file, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def get(self, key: str, file: Path) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("get", f"lake/{key}", file, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def folder(self, prefix: str, into: Path) -> Path:
        """Copies the objects below a prefix, and nothing else."""
        shutil.rmtree(into, ignore_errors=True)
        for key in self.list(prefix):
            file = into / key[len(prefix) :]
            file.parent.mkdir(parents=True, exist_ok=True)
            self.get(key, file)
        return into

    def delete(self, key: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("delete", f"lake/{key}", file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def age(self, key: str, by: str) -> None:
        """Sets the time of an object back, for example by 1h."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("age", f"lake/{key}", by, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def list(self, prefix: str) -> list[str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("list", f"lake/{prefix}", file=self.process.stdin, flush=True)
        return [line.rstrip("\n") for line in iter(self.process.stdout.readline, "done\n")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program = os.environ.get("HEADRACE_SERVER_S3") or str(tmp_path_factory.mktemp("s3") / "server-s3")
    if "HEADRACE_SERVER_S3" not in os.environ:
        subprocess.run(["go", "build", "-o", program, "./internal/proof/testbroker/server-s3"], cwd=ROOT, check=True)
    server = Server(program)
    yield server
    server.process.terminate()
    server.process.communicate(timeout=300)
