"""Exact saves of a shared model, while three trainers train and any of them is killed: the saved
model holds exactly the records of the checkpoint's cut."""

from __future__ import annotations

import json
import signal
import socket
import struct
from typing import Any

import headrace
import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest
from ports import free_port
from seen import ids_of

# The model counts how often each id was pushed. It outlives the trainers.
SERVER = """
import os, socketserver, struct, sys, threading
import numpy as np

seen, lock = np.zeros(int(sys.argv[2]), np.int64), threading.Lock()

class Peer(socketserver.StreamRequestHandler):
    def handle(self):
        while len(head := self.rfile.read(4)) == 4:
            (n,) = struct.unpack("<i", head)
            body = self.rfile.read(8 * max(n, 0))
            if len(body) < 8 * n:
                return
            with lock:
                if n >= 0:
                    np.add.at(seen, np.frombuffer(body, np.int64), 1)
                answer = b"k" if n >= 0 else seen.tobytes()
            self.wfile.write(answer)

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

with Server(sys.argv[1], Peer) as server:
    print("serves", flush=True)
    server.serve_forever()
"""

TRAINER = """
import headrace, json, os, queue, signal, socket, struct, sys, threading, time
import numpy as np

cfg = json.loads(os.environ["TRAINER"])
rank = int(os.environ["RANK"])
peer, lock = socket.socket(socket.AF_UNIX), threading.Lock()
peer.connect(cfg["server"])
reads = peer.makefile("rb")

def push(ids):
    with lock:
        peer.sendall(struct.pack("<i", len(ids)) + ids.tobytes())
        reads.read(1)

pulls, good, saver, before = 0, 0, None, {}

def pace():  # slow until all trainers have done what the test needs, so that the data does not end before
    time.sleep(cfg.get("pause", 0) * (1 if all(map(os.path.exists, cfg["enough"])) else 20))

def pull():  # called while the yields of all trainers are paused
    global pulls
    pulls += 1
    if pulls == 3 and "kill" in cfg:
        open(cfg["killed"], "w").close()
        os.kill(cfg["kill"] or os.getpid(), signal.SIGKILL)
    with lock:
        peer.sendall(struct.pack("<i", -1))
        now = np.frombuffer(reads.read(8 * cfg["rows"]), np.int64)
    for table in cfg.get("options", {}).get("deltas", ()):
        saver.touch(table, np.flatnonzero(now != before[table]) if table in before else np.arange(0))
        before[table] = now
    return {"seen": now}

def save(ck, step):
    global good
    try:
        saved = ck.save(step, pull)
        print("saved", os.path.basename(saved.wait()), saved.exact, flush=True)
        open(cfg["go"], "w").close()
        if (good := good + 1) == 4:
            open(cfg["enough"][0], "w").close()
    except headrace.CheckpointError as error:
        print("failed", error, flush=True)

def one_by_one(ack):
    global saver
    with headrace.dataset("rows").batches(50, ack=ack) as stream:
        ck = saver = headrace.Checkpointer(cfg["dir"], stream, keep=1000, **cfg.get("options", {}))
        for n, b in enumerate(stream):
            push(b["id"])
            pace()
            if ack == "step":
                step = stream.step()
                if rank == 0 and n % cfg["every"] == 0:
                    save(ck, step)

def gathers():  # several batches to a step
    with headrace.dataset("rows").batches(50) as stream:
        held = []
        for n, b in enumerate(stream):
            held.append(b)
            if n == 60:  # there is no end while some are unstepped
                open(cfg["enough"][1], "w").close()
            if len(held) == 3 or n >= 60:
                time.sleep(cfg["pause"])
                push(np.concatenate([b["id"] for b in held]))
                stream.step(batches=len(held))
                held = []

def ahead():  # one thread asks for batches, another one trains them
    with headrace.dataset("rows").batches(50) as stream:
        ready = queue.Queue(2)
        thread = threading.Thread(target=lambda: ([ready.put(b) for b in stream], ready.put(None)))
        thread.start()
        while (b := ready.get()) is not None:
            push(b["id"])
            pace()
            stream.step(batches=1)
        thread.join()

def two():  # two streams, whose batches are stepped together
    streams = [headrace.dataset("rows").batches(50) for _ in range(2)]
    for _ in range(40):
        batches = [next(s) for s in streams]
        time.sleep(cfg["pause"])
        for b in batches:
            push(b["id"])
        for s in streams:
            s.step(batches=1)
    open(cfg["enough"][1], "w").close()  # there is no end while some are unstepped
    streams.pop().close()
    for b in streams[0]:
        time.sleep(cfg["pause"])
        push(b["id"])
        streams[0].step()
    streams[0].close()

headrace.init()
print("begins", flush=True)
while rank != 0 and not os.path.exists(cfg["go"]):  # rank 0 has saved
    time.sleep(0.01)
if cfg["how"] in ("step", "auto"):
    one_by_one(cfg["how"])
else:
    {"gathers": gathers, "ahead": ahead, "two": two}[cfg["how"]]()
print("ends", flush=True)
"""


class World:
    """Three trainers of one model, and its server."""

    def __init__(self, job: Any, rows: int, *enough: str, **more: Any) -> None:
        """enough: files that must exist before the data may end, besides the one for rank 0's saves."""
        self.job, self.rows, self.more = job, rows, more
        self.enough = [str(job.folder / name) for name in ("saved", *enough)]
        self.server = job.helper(SERVER, str(job.folder / "ps"), str(rows))
        self.server.printed(1)
        self.trainers: list[Any] = []

    def start(self, rank: int, how: str = "step", **more: Any) -> Any:
        cfg = {"rows": self.rows, "dir": str(self.job.folder / "ckpt"), "every": 5, "how": how,
               "server": str(self.job.folder / "ps"), "killed": str(self.job.folder / "killed"),
               "go": str(self.job.folder / "go"), "enough": self.enough,
               **self.more, **more}  # fmt: skip
        trainer = self.job.trainer(TRAINER, TRAINER=json.dumps(cfg), RANK=str(rank), WORLD_SIZE="3")
        self.trainers.append(trainer)
        return trainer

    def checked(self, repeats: int = 0) -> int:
        """Checks that every checkpoint is exact: its model holds its cut, and at most `repeats` records
        more. Returns the number of checkpoints."""
        found = manifest.find(str(self.job.folder / "ckpt"))
        for m in found:
            assert manifest.verify(m) is None
            assert m.cut["exact"] is True
            counts = np.zeros(self.rows, np.int64)
            np.add.at(counts, ids_of(self.job, m.cut), 1)
            more = headrace._restore._load(m, 0)["seen"] - counts
            assert more.min() >= 0, (m.path, "records of the cut are not in the model", int((more < 0).sum()))
            assert more.sum() <= repeats, (m.path, "more than the cut is in the model", int(more.sum()))
        return len(found)


@pytest.mark.parametrize("others", [("auto", "gathers"), ("ahead", "two")], ids="-".join)
def test_a_shared_model_is_saved_exactly_while_others_train(job: Any, others: tuple[str, str]) -> None:
    # Many rows and small leases. If all rows were leased early, one stream of `two` would have none, and
    # the other one would wait for it with a batch that it cannot step.
    n = job.write(80_000)
    job.up("--model", "shared")
    job.apply(more="lease: {initial: 4KiB, min: 1KiB, max: 8KiB}")
    world = World(job, n, "through")
    for rank, how in enumerate(("step", *others)):
        world.start(rank, how, pause=0.01)
    for t in world.trainers:
        out = t.ended()
        assert t.process.returncode == 0, out + job.logs()
        assert "\nends\n" in out
        assert "failed" not in out, out + job.logs()
    assert world.checked() >= 3, job.logs()


def model_of(job: Any, rows: int) -> np.ndarray:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(job.folder / "ps"))
        peer.sendall(struct.pack("<i", -1))
        with peer.makefile("rb") as answer:
            return np.frombuffer(answer.read(8 * rows), np.int64)


def end(world: World, *trainers: Any) -> list[str]:
    """Waits until all have ended. Checks that the model has each record once, and that every checkpoint is
    exact. Returns what the trainers printed."""
    outs = []
    for t in trainers:
        outs.append(t.ended())
        assert t.process.returncode == 0, outs[-1] + world.job.logs()
    assert np.array_equal(model_of(world.job, world.rows), np.ones(world.rows, np.int64)), world.job.logs()
    assert world.checked() >= 3
    return outs


def test_a_trainer_that_is_killed_while_it_is_held_costs_nothing(job: Any) -> None:
    n = job.write(20_000)
    job.up("--model", "shared")
    job.apply()
    world = World(job, n)
    other, victim = world.start(1, pause=0.01), world.start(2, pause=0.01)
    saver = world.start(0, kill=victim.process.pid)
    victim.process.wait(300)
    out, _ = end(world, saver, other)
    assert "failed" not in out, out + job.logs()


def test_others_go_on_when_the_saver_is_killed_while_it_holds_them(job: Any) -> None:
    n = job.write(20_000)
    job.up("--model", "shared")
    job.apply()
    world = World(job, n)
    others = [world.start(1, pause=0.01), world.start(2, pause=0.01)]
    saver = world.start(0, kill=0)
    saver.process.wait(300)
    assert saver.process.returncode == -signal.SIGKILL, saver.ended() + job.logs()
    out, *_ = end(world, world.start(0), *others)
    assert "failed" not in out, out + job.logs()


@pytest.mark.parametrize("which", ["agent", "master"])
def test_a_save_fails_and_says_so_when_its_agent_or_master_is_killed(job: Any, which: str) -> None:
    n = job.write(20_000)
    roots = ("--allow-root", str(job.folder))
    options = {
        "master": ("master", "--model", "shared", "--http", "off", "--session-ttl", "20s", *roots),
        "agent": ("agent", "--name", "a1", "--socket", job.socket, *roots),
    }
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    processes = {"master": job.start(*options["master"])}
    address = job.folder / "state" / "master.addr"
    poll(address.exists)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    job.apply()
    processes["agent"] = job.start(*options["agent"])
    job.await_socket(processes["agent"])
    world = World(job, n, "through")
    others = [world.start(1, "auto", pause=0.01), world.start(2, "gathers", pause=0.01)]
    saver = world.start(0, pause=0.01, kill=processes[which].pid)
    processes[which].wait(300)
    job.start(*options[which])
    out, *_ = end(world, saver, *others)
    assert out.count("failed") == 1, out + job.logs()
    assert "not exact" in out, out + job.logs()
    assert out.count("saved") >= 3, out  # the trainer goes on, and later saves succeed


def test_who_does_not_stop_is_named_and_the_others_go_on(job: Any) -> None:
    job.write(5_000)
    job.up("--model", "shared")
    job.apply()
    held = job.trainer(
        """
import headrace
with headrace.dataset("rows").batches(50) as stream:
    b = next(stream)
    print("has one", flush=True)
    input()
    stream.step()
    for b in stream:
        stream.step()
print("ends", flush=True)
""",
        RANK="1",
        WORLD_SIZE="2",
        stdin=True,
    )
    held.printed(1)
    headrace.init(rank=0, world_size=2)
    with headrace.dataset("rows").batches(50) as stream:
        ck = headrace.Checkpointer(job.folder / "ckpt", stream, pause_timeout=1)
        next(stream)
        with pytest.raises(ValueError, match="not stepped"):
            ck.save(0, dict)
        step = stream.step()
        with pytest.raises(headrace.CheckpointError, match="rank 1 has not stepped all"):
            ck.save(step, dict)
        next(stream)
        step = stream.step()
        held.process.stdin.write(b"\n")
        held.process.stdin.close()
        for _ in stream:
            step = stream.step()
        ck.close()
        patient = headrace.Checkpointer(job.folder / "ckpt", stream)
        assert patient.save(step, lambda: {"x": 1}).wait()
        patient.close()
    assert held.ended().endswith("ends\n")


def test_a_stream_without_steps_refuses_the_hold_by_name(job: Any) -> None:
    job.write(5_000)
    job.up("--model", "shared")
    job.apply()
    headrace.init()
    with headrace.dataset("rows").batches(50, track=False) as loose, headrace.dataset("rows").batches(50) as stream:
        next(loose)
        next(stream)
        step = stream.step()
        with pytest.raises(headrace.CheckpointError, match='rank 0 reads dataset "rows" without steps'):
            headrace.Checkpointer(job.folder / "ckpt", stream).save(step, dict)
