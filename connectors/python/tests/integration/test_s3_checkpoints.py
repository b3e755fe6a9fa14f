"""Checkpoints on a real S3 server, through real processes: `make test-s3`."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace import _slots
from s3_server import Server, server

__all__ = ["server"]  # a fixture

# The model counts how often it has seen each id. `copies` makes the upload take a while. In a
# checkpoint it must be equal to the model as it was when save() was called.
TRAINER = """
import headrace, json, os, signal, sys, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])

class Checkpointer(headrace.Checkpointer):
    def _reached(self, point):
        if cfg.get("die") == point and cfg.get("die_after", 0) <= self._trainer.last_step:
            print("dies at", point, self._trainer.last_step, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

seen = np.zeros(cfg["rows"], np.int64)
trainer = headrace.init()
memory = cfg.get("memory", False)
with headrace.dataset("rows").batches(50) as stream, \\
        Checkpointer(cfg["dir"], stream, memory=memory, keep=cfg.get("keep", 3), timeout=cfg.get("timeout", 300),
                     **cfg.get("options", {})) as ck:
    restored = ck.restore()
    if restored is not None:
        seen[:] = restored.state["seen"]
        assert (restored.state["copies"] == restored.step).all(), "the checkpoint is torn"
    step = restored.step if restored is not None else 0
    print("restored", step, int(seen.sum()), restored.source if restored else "-", flush=True)
    del restored
    copies = np.zeros((cfg.get("kib", 64), 128))
    for b in stream:
        np.add.at(seen, b["id"], 1)
        for table in cfg.get("options", {}).get("deltas", ()):
            ck.touch(table, b["id"])
        step = stream.step(step + 1)
        copies[:] = step
        if step % cfg.get("every", 5) == 0:
            saved = ck.save(step, {"seen": seen, "copies": copies, "step": step})
            copies[:] = -1  # a torn copy would have it
            if cfg.get("wait", True):
                saved.wait()
                print("stored", step, flush=True)
        if step == cfg.get("stop"):
            os.kill(os.getpid(), signal.SIGKILL)
    copies[:] = step
    ck.save(step, {"seen": seen, "copies": copies, "step": step}).wait() if step != 0 else None
print("end", step, *seen.tolist(), flush=True)
"""

PREFIX = "ckpt"


@pytest.fixture(autouse=True)
def surroundings(job: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the slots of this test, in the real tmpfs, and credentials in the form of the aws command."""
    folder = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(folder))
    job.env.update(server.env)
    job.env[_slots.ROOT_VARIABLE] = str(folder)
    yield folder
    shutil.rmtree(folder)


def url(job: Any) -> str:
    return f"s3://lake/{job.folder.name}/{PREFIX}"


def settings(job: Any, rows: int, **more: Any) -> dict[str, str]:
    return {"TRAINER": json.dumps({"rows": rows, "dir": url(job), **more})}


def keys(job: Any, server: Server) -> list[str]:
    """The keys of the objects below the folder of checkpoints, without its prefix."""
    at = f"{job.folder.name}/{PREFIX}/"
    return [key[len(at) :] for key in server.list(at)]


def listed(job: Any) -> list[dict[str, Any]]:
    """The checkpoints that `headrace ckpt list` finds in the bucket."""
    out = job.headrace("ckpt", "list", url(job), "-o", "json").stdout
    return [v for v in json.loads(out) if v["state"] != "memory"]


def of_line(out: str, word: str) -> list[str]:
    lines = [line for line in out.splitlines() if line.startswith(f"{word} ") and line.split()[1].isdigit()]
    assert len(lines) == 1, out
    return lines[0].split()


def of_end(out: str) -> np.ndarray:
    return np.array([int(w) for w in of_line(out, "end")[2:]])


def no_credentials(job: Any, server: Server) -> None:
    """Checks that no log and no slot contains the credentials."""
    for file in [*job.folder.glob("*.log"), *(job.folder / "state").rglob("*")]:
        if file.is_file():
            assert server.env["AWS_SECRET_ACCESS_KEY"].encode() not in file.read_bytes(), file


@pytest.mark.parametrize("model", ["replicated", "private"])
@pytest.mark.parametrize("memory", [True, False])
def test_a_killed_trainer_goes_on_from_the_bucket(job: Any, server: Server, model: str, memory: bool) -> None:
    n = job.write(5000)
    up = job.up("--model", model)
    job.apply()
    last = 0
    for stop in (13, 28, 61):
        trainer = job.trainer(TRAINER, **settings(job, n, memory=memory, stop=stop))
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert int(of_line(out, "restored")[1]) == last, out
        last = stop // 5 * 5
    # Start a new master without state, and lose this node's memory.
    up.kill()
    up.wait()
    shutil.rmtree(job.folder / "state")
    shutil.rmtree(job.env[_slots.ROOT_VARIABLE])
    os.mkdir(job.env[_slots.ROOT_VARIABLE], 0o700)
    os.unlink(job.socket) if os.path.exists(job.socket) else None
    job.up("--model", model)
    job.apply()
    out = job.trainer(TRAINER, **settings(job, n, memory=memory)).ended()
    assert of_line(out, "restored")[1::2] == ["60", "storage"], out
    assert of_line(out, "restored")[2] == str(60 * 50), out
    assert (of_end(out) == 1).all(), out
    no_credentials(job, server)


def test_the_tools_work_on_a_bucket(job: Any, server: Server) -> None:
    n = job.write(5000)
    job.up("--model", "replicated")
    job.apply()
    out = job.trainer(TRAINER, **settings(job, n, every=20, keep=3)).ended()
    assert (of_end(out) == 1).all(), out
    found = listed(job)
    assert [v["step"] for v in found] == [100, 80, 60], "keep=3"  # the save at the end is of step 100
    assert {v["state"] for v in found} == {"whole"}
    assert {v["ledger"] for v in found} == {"bound"}
    names = [key for key in keys(job, server) if key != "headrace-memory-id"]
    assert sorted(names) == sorted(
        f"{v['path'].split('/')[-2]}/{name}" for v in found for name in ("headrace-manifest.json", "state.safetensors")
    )
    old = found[2]["path"].rsplit("/", 1)[0]
    assert "verifies" in job.headrace("ckpt", "verify", url(job)).stdout
    assert "state.safetensors" in job.headrace("ckpt", "show", old).stdout
    assert json.loads(job.headrace("audit", old, "-o", "json").stdout)["step"] == 60
    job.headrace("ckpt", "pin", old, "--reason", "kept")
    assert listed(job)[2]["pinned"]
    job.headrace("ckpt", "unpin", old)
    mark = job.folder / "mark"
    mark.touch()
    removing = f"{job.folder.name}/{PREFIX}/{old.rsplit('/', 1)[1]}/headrace-manifest.json.removing"
    server.put(removing, mark)  # as a process leaves it that was killed before it had removed the checkpoint
    refused = job.headrace("ckpt", "pin", old, check=False)
    assert refused.returncode != 0
    assert "somebody is removing it" in refused.stderr, refused
    assert not listed(job)[2]["pinned"]
    server.delete(removing)
    job.headrace("ckpt", "rm", found[1]["path"], "--yes")
    assert [v["step"] for v in listed(job)] == [100, 60]
    job.headrace("rewind", "default", "--to", old, "--yes")
    out = job.trainer(TRAINER, **settings(job, n, every=20)).ended()
    assert of_line(out, "restored")[1:3] == ["60", "3000"], out
    assert (of_end(out) == 1).all(), out


def test_wrong_credentials_of_a_bucket_are_reported(job: Any, server: Server) -> None:
    n = job.write(500)
    job.env["AWS_SECRET_ACCESS_KEY"] = "wrong"
    job.up("--model", "replicated")
    job.apply()
    trainer = job.trainer(TRAINER, **settings(job, n))
    out = trainer.ended()
    assert trainer.process.returncode == 1
    assert "CheckpointError" in out, out
    assert "the secret key does not fit the access key" in out, out


def test_a_bucket_that_is_gone_stops_nobody_silently(job: Any, server: Server) -> None:
    n = job.write(500)
    job.up("--model", "replicated")
    job.apply()
    trainer = job.trainer(TRAINER, TRAINER=json.dumps({"rows": n, "dir": "s3://nowhere/ckpt"}))
    out = trainer.ended()
    assert trainer.process.returncode == 1
    assert "there is no bucket nowhere" in out, out


@pytest.mark.parametrize("point", ["frozen", "sealed", "renamed"])
@pytest.mark.parametrize("memory", [True, False])
def test_a_crash_at_every_point_leaves_whole_checkpoints(job: Any, server: Server, memory: bool, point: str) -> None:
    n = job.write(5000)
    job.up("--model", "replicated")
    job.apply()
    trainer = job.trainer(TRAINER, **settings(job, n, memory=memory, die=point, die_after=20, kib=20_000))
    out = trainer.ended()
    assert trainer.process.returncode == -signal.SIGKILL, out
    assert "dies at" in out, out
    out = job.trainer(TRAINER, **settings(job, n, memory=memory, kib=20_000, every=40)).ended()
    assert int(of_line(out, "restored")[1]) in (15, 20), out
    assert int(of_line(out, "restored")[2]) == 50 * int(of_line(out, "restored")[1]), out
    assert (of_end(out) == 1).all(), out
    job.headrace("ckpt", "verify", url(job))


class Slow(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the server. Holds the third part of an upload until the test lets it go."""

    server: Any
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "partNumber=3" in self.path and not self.server.go.is_set():
            self.server.held.set()
            self.server.go.wait()
            self.close_connection = True
            return
        try:
            self._ask(body)
        except (OSError, http.client.HTTPException):  # the agent was killed, or the server has ended
            self.close_connection = True

    def _ask(self, body: bytes) -> None:
        with contextlib.closing(http.client.HTTPConnection(self.server.to, timeout=300)) as to:
            to.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                to.putheader(name, value)
            to.endheaders(body)
            with to.getresponse() as answer:
                data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header(
            "Content-Length", answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        )
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass


@pytest.mark.parametrize("memory", [True, False])
def test_an_agent_that_is_killed_in_an_upload_leaves_no_checkpoint(job: Any, server: Server, memory: bool) -> None:
    """The slot of the checkpoint is still there."""
    proxy: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    proxy.daemon_threads = True
    proxy.held, proxy.go = threading.Event(), threading.Event()
    proxy.to = server.env["AWS_ENDPOINT_URL"].removeprefix("http://")
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    job.env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.server_address[1]}"
    try:
        n = job.write(5000)
        up = job.up("--model", "replicated")
        job.apply()
        trainer = job.trainer(TRAINER, **settings(job, n, memory=memory, kib=65_536))
        assert proxy.held.wait(300), job.logs()
        up.kill()
        trainer.process.kill()
        up.wait()
        trainer.process.wait()
        proxy.go.set()
        assert [key for key in keys(job, server) if key.endswith("headrace-manifest.json")] == []
        os.unlink(job.socket) if os.path.exists(job.socket) else None
        job.up("--model", "replicated")
        out = job.trainer(TRAINER, **settings(job, n, memory=memory, kib=65_536, every=50)).ended()
        assert of_line(out, "restored")[1:] == (["5", "250", "memory"] if memory else ["0", "0", "-"]), out
        assert (of_end(out) == 1).all(), out
        job.headrace("ckpt", "verify", url(job))
        assert [v["state"] for v in listed(job)][:2] == ["whole", "whole"]
    finally:
        proxy.go.set()
        proxy.shutdown()
        proxy.server_close()
