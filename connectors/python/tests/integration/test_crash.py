"""Records that crash their trainer, under `headrace run` with on_crash: isolate."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

BAD = (2345, 4000)
RECORDS = 5000

SPEC = """\
name: clicks
files: {{root: {root}}}
decode:
  format: tsv
  columns:
    - {{name: n, path: 0, dtype: int64}}
on_crash: isolate
"""

TRAINER = """\
import ctypes, os, signal, sys, time
import headrace

bad = {int(n) for n in os.environ["BAD"].split(",") if n}
seen = open(os.environ["SEEN"], "a")
with headrace.dataset("clicks").batches(int(os.environ["ROWS"])) as stream:
    for b in stream:
        n = b["n"].tolist()
        if bad & set(n):
            print(f"crash {len(n)}", file=seen, flush=True)
            time.sleep(float(os.environ.get("WORK", "0")))
            ctypes.string_at(0)
        if "KILL" in os.environ and os.environ["HEADRACE_ATTEMPT"] < "6":
            os.kill(os.getpid(), signal.SIGKILL)  # with the batch in hand
        print(*n, sep="\\n", file=seen, flush=True)
        stream.step()
"""

PRIVATE = """\
import ctypes, os
import headrace
import numpy as np

bad = {int(n) for n in os.environ["BAD"].split(",")}
with headrace.dataset("clicks").batches(64) as stream, headrace.Checkpointer("checkpoints", stream) as ck:
    restored = ck.restore()
    model = [] if restored is None else restored.state["model"].tolist()
    step = 0 if restored is None else restored.step
    for b in stream:
        n = b["n"].tolist()
        if bad & set(n):
            print(f"crash {len(n)}", file=open(os.environ["SEEN"], "a"), flush=True)
            ctypes.string_at(0)
        model += n
        step = stream.step(step + 1)
        if step % 20 == 0:
            ck.save(step, {"model": np.array(model)})
    ck.save(step, {"model": np.array(model)})
print(*model, sep="\\n", file=open(os.environ["SEEN"], "a"), flush=True)
"""


# Two trainers of two datasets. When one has ended, the other aborts, as in a collective. The one
# that reads `views` has record 7 in hand three times when the other one crashes.
TOGETHER = """\
import ctypes, os, pathlib, socket, threading, time
import headrace

rank, seen = int(os.environ["RANK"]), pathlib.Path(os.environ["SEEN"])
mine, other = seen.with_name(f"{rank}.sock"), seen.with_name(f"{1 - rank}.sock")
mine.unlink(missing_ok=True)
listener = socket.create_server(str(mine), family=socket.AF_UNIX)

def meet():
    while True:
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.connect(str(other))
            break
        except OSError:
            time.sleep(0.01)
    if peer.recv(3) != b"bye":
        os.abort()

meeting = threading.Thread(target=meet, daemon=True)
meeting.start()
there = listener.accept()[0]  # open until this process ends

def note(*what):
    with seen.open("a") as f:
        print(*what, sep="\\n", file=f)

def count(word):
    return seen.read_text().count(word)

note("begins")
with headrace.dataset("clicks" if rank else "views").batches(64) as stream:
    for b in stream:
        n = b["n"].tolist()
        if rank and 2345 in n:
            while count("holds") <= count("crash") and count("holds") < 4:
                time.sleep(0.01)
            note(f"crash {len(n)}")
            ctypes.string_at(0)
        if not rank and 7 in n:
            note("holds")
            while count("holds") < 4:
                time.sleep(0.01)
        note(*n)
        stream.step()
there.sendall(b"bye")
meeting.join()
"""

# Both ranks have the same model. A server of the test is their collective. When one rank ends, it
# closes the other one's connection, and the other one aborts.
REPLICATED = """\
import ctypes, json, os, socket
import headrace
import numpy as np

bad = {int(n) for n in os.environ["BAD"].split(",")}
file = socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))).makefile("rw")

def gather(rows):
    try:
        print(json.dumps(rows), file=file, flush=True)
        return json.loads(file.readline())
    except (OSError, ValueError):
        os.abort()

with headrace.dataset("clicks").batches(64) as stream, headrace.Checkpointer("checkpoints", stream) as ck:
    restored = ck.restore()
    model = [] if restored is None else restored.state["model"].tolist()
    step = 0 if restored is None else restored.step
    for b in stream:
        n = b["n"].tolist()
        if bad & set(n):
            print(f"crash {len(n)}", file=open(os.environ["SEEN"], "a"), flush=True)
            ctypes.string_at(0)
        model += gather(n)
        step = stream.step(step + 1)
        if step % 20 == 0:
            ck.save(step, {"model": np.array(model)})
    ck.save(step, {"model": np.array(model)})
if os.environ["RANK"] == "0":
    print(*model, sep="\\n", file=open(os.environ["SEEN"], "a"), flush=True)
"""


class Collective:
    """Answers each of two ranks with what both have sent. When one ends, it closes the other's connection."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = str(self.server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._group([self.server.accept()[0] for _ in range(2)])

    def _group(self, ranks: list[socket.socket]) -> None:
        files = [rank.makefile("rw") for rank in ranks]
        try:
            while True:
                said = [f.readline() for f in files]
                if not all(said):
                    return
                for f in files:
                    print(json.dumps([n for line in said for n in json.loads(line)]), file=f, flush=True)
        except OSError:
            pass
        finally:
            for end in (*files, *ranks):
                with contextlib.suppress(OSError):
                    end.close()


class Job:
    def __init__(self, folder: pathlib.Path, binary: str) -> None:
        self.folder, self.binary, self.seen = folder, binary, folder / "seen"
        (folder / "data").mkdir()
        (folder / "data" / "a.tsv").write_text("".join(f"{i}\tx{i}\n" for i in range(RECORDS)))
        (folder / "clicks.yaml").write_text(SPEC.format(root=folder / "data"))
        (folder / "train.py").write_text(TRAINER)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")},
            "SEEN": str(self.seen),
            "TMPDIR": str(folder),
            "HEADRACE_STATE": str(folder / "state"),
            "HEADRACE_AGENT": str(folder / "a.sock"),
            "HEADRACE_SESSION_TTL": "20s",  # so long that no session ends on a slow machine
        }

    def command(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.binary, *args], env={**self.env, **env}, cwd=self.folder, capture_output=True, text=True, timeout=800
        )

    def run(self, *args: str, model: str = "shared", **env: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(self.folder / "train.py")]
        args = ("run", "--model", model, "-f", "clicks.yaml", *args, "--", *program)
        return self.command(*args, **{"ROWS": "64", "BAD": ",".join(map(str, BAD)), **env})

    def trained(self) -> collections.Counter[int]:
        lines = self.seen.read_text().splitlines()
        return collections.Counter(int(line) for line in lines if line.isdigit())

    def crashes(self) -> list[int]:
        return [int(line.split()[1]) for line in self.seen.read_text().splitlines() if line.startswith("crash")]

    def letters(self) -> list[dict[str, object]]:
        path = self.folder / "state" / "deadletters" / "clicks.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def job(tmp_path: pathlib.Path, binary: str) -> Job:
    return Job(tmp_path, binary)


def all_but(*bad: int) -> collections.Counter[int]:
    return collections.Counter(set(range(RECORDS)) - set(bad))


def test_a_record_that_crashes_late_in_a_long_step_is_left_out(job: Job) -> None:
    """Its step takes longer than the agent waits at first. Even so, the agent must not send the next
    record before the step."""
    r = job.run("--max-restarts", "30", BAD="2345", WORK="1.5")
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but(2345)
    assert [k["kind"] for k in job.letters()] == ["crash"]


@pytest.mark.parametrize("trainers", [1, 2])
def test_a_record_that_crashes_its_trainer_twice_alone_is_left_out(job: Job, trainers: int) -> None:
    """The others are trained once, and `headrace deadletter` shows it with its bytes."""
    r = job.run("--max-restarts", "50", "--nproc-per-node", str(trainers))
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but(*BAD)
    # There is no upper limit here, not even for one trainer, because some crashes do not count. If both
    # trainers crash together, only the first end counts. A crash that is seen late does not count
    # either (docs/BAD-RECORDS.md): the agent waits a second for the report of `headrace run`, and the
    # next record leaves a second after one that is not stepped. That two crashes are enough is tested
    # without a clock: TestARecordThatCrashesTwoTrainersAloneIsExcluded.
    assert job.crashes().count(1) >= 2 * len(BAD), job.crashes()
    letters = sorted(job.letters(), key=lambda k: str(k["offset"]))
    assert [k["kind"] for k in letters] == ["crash"] * len(BAD)

    (job.folder / "mended.yaml").write_text(
        "name: mended\nlanding: {}\ndecode:\n  format: tsv\n  columns:\n    - {name: n, path: 0, dtype: int64}\n"
    )
    up = subprocess.Popen(
        [job.binary, "up", "-f", "mended.yaml"], env=job.env, cwd=job.folder, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 300
        while (status := job.command("dataset", "status", "mended")).returncode != 0:
            assert time.monotonic() < deadline, status.stderr
            assert up.poll() is None
            time.sleep(0.1)
        listed = json.loads(job.command("deadletter", "list", "clicks", "-o", "json").stdout)
        assert len(listed) == len(BAD)
        first = min(listed, key=lambda k: k["offset"])
        shown = job.command("deadletter", "show", "clicks", first["id"]).stdout
        assert "its trainer died twice while it alone was in the batch" in shown
        assert job.command("deadletter", "show", "clicks", first["id"], "--raw").stdout == f"{BAD[0]}\tx{BAD[0]}"
        again = job.command("deadletter", "replay", "clicks", "--all", "--into", "mended")
        assert f"{len(BAD)} records pushed into mended" in again.stdout, again.stderr
        described = json.loads(job.command("dataset", "status", "clicks", "-o", "json").stdout)
        assert described["state"] == "done"
        assert described["bad"]["records"] == len(BAD)
    finally:
        up.terminate()
        up.communicate(timeout=300)


def test_many_records_that_crash_three_trainers_are_all_left_out(job: Job) -> None:
    """Each trainer meets such a record soon after its start, so most failures come within a second of
    another one."""
    bad = (0, 1, 64, 130, 700, 2345, 4000, RECORDS - 1)
    r = job.run("--max-restarts", "200", "--nproc-per-node", "3", BAD=",".join(map(str, bad)))
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but(*bad)
    assert job.crashes().count(1) >= 2 * len(bad), job.crashes()
    assert sorted(k["offset"] for k in job.letters()) == sorted(sum(len(f"{i}\tx{i}\n") for i in range(n)) for n in bad)


def test_the_suspicion_outlives_the_master_and_the_agent(job: Job) -> None:
    bad = {"BAD": str(BAD[0])}
    r = job.run("--max-restarts", "1", **bad)  # a crash with a whole batch, one with the record alone; the job ends
    assert r.returncode != 0
    assert len(job.crashes()) == 2, r.stderr
    for _ in range(5):  # one more run is enough, unless a crash was seen late and so does not count
        if (r := job.run("--max-restarts", "1", **bad)).returncode == 0:
            break
    assert r.returncode == 0, r.stderr
    crashes = job.crashes()
    assert set(crashes) == {64, 1}
    assert crashes.count(1) >= 2, crashes
    assert crashes == sorted(crashes, reverse=True), "after it came alone, the record came in a whole batch again"
    assert job.trained() == all_but(BAD[0])
    assert len(job.letters()) == 1


def test_a_private_model_goes_back_and_the_record_is_found(job: Job) -> None:
    """Records after the newest checkpoint come again, and those that were suspect still are."""
    (job.folder / "train.py").write_text(PRIVATE)
    r = job.run("--max-restarts", "50", model="private")
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but(*BAD)  # as the last model says
    assert job.crashes().count(1) >= 2 * len(BAD), job.crashes()
    assert [k["kind"] for k in job.letters()] == ["crash"] * len(BAD)


def test_killed_trainers_make_no_dead_letter(job: Job) -> None:
    """Six trainers in a row are killed with the same good record in hand."""
    r = job.run("--max-restarts", "6", BAD="", ROWS="1", KILL="yes")
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but()
    assert job.letters() == []


def test_only_what_the_first_one_had_in_hand_is_suspect(job: Job) -> None:
    """A trainer aborts three times with the same record in hand, because the other one has crashed.
    That record is not left out."""
    (job.folder / "train.py").write_text(TOGETHER)
    (job.folder / "more").mkdir()
    (job.folder / "more" / "a.tsv").write_text("".join(f"{i}\tx{i}\n" for i in range(10)))
    views = SPEC.format(root=job.folder / "more").replace("name: clicks", "name: views")
    (job.folder / "views.yaml").write_text(views)
    r = job.run("-f", "views.yaml", "--nproc-per-node", "2", "--max-restarts", "20")
    assert r.returncode == 0, r.stderr
    assert "SIGABRT" in r.stderr
    assert job.trained() == all_but(2345) + collections.Counter(range(10))
    assert [k["kind"] for k in job.letters()] == ["crash"]
    assert not (job.folder / "state" / "deadletters" / "views.jsonl").exists()


def test_a_replicated_group_goes_back_and_the_record_is_found(job: Job) -> None:
    """The rank that has the record segfaults, and the other one aborts in its collective."""
    (job.folder / "train.py").write_text(REPLICATED)
    collective = Collective()
    with collective.server:
        r = job.run("--max-restarts", "50", "--nproc-per-node", "2", model="replicated", PORT=collective.port)
    assert r.returncode == 0, r.stderr
    assert job.trained() == all_but(*BAD)  # as the last model says
    assert job.crashes().count(1) >= 2 * len(BAD), job.crashes()
    assert [k["kind"] for k in job.letters()] == ["crash"] * len(BAD)
