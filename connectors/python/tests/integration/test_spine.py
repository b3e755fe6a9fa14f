"""The package against the real agent and master: every record comes, whichever process is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from ports import free_port


def read_ids(dataset: str = "rows", rows: int = 100) -> list[int]:
    ids: list[int] = []
    with headrace.dataset(dataset).batches(rows) as stream:
        for b in stream:
            ids.extend(b["id"].tolist())
            stream.step()
    return ids


@pytest.mark.parametrize("shared", ["1", "0"])
def test_every_record_comes_once_with_the_values_of_its_line(
    job: Any, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames come in shared memory, or over the socket. They are large enough for either way."""
    monkeypatch.setenv("HEADRACE_SHARED_FRAMES", shared)
    n = job.write(40_000)
    job.up()
    job.apply()
    seen: Counter[int] = Counter()
    mapped = 0
    with headrace.dataset("rows").batches(2000) as stream:
        sizes = []
        for b in stream:
            mapped = max(mapped, Path("/proc/self/maps").read_text().count("memfd:headrace"))
            ids = b["id"]
            sizes.append(len(b))
            seen.update(ids.tolist())
            want = np.stack([ids % 7, np.where(ids % 5 == 0, -1, ids % 11), np.full(len(ids), 0.5)], axis=1)
            assert np.array_equal(b["dense"], want.astype(np.float32))
            words = [f"w{i % 97}" for i in ids.tolist()]
            assert b["word"].tolist() == words
            hashed = np.stack(
                [headrace.hash64(words, "s", 1000), headrace.hash64([f"z{i}" for i in ids.tolist()], "s", 1000)], axis=1
            )
            assert np.array_equal(b["cat"], hashed)
            stream.step()
    assert seen == Counter(range(n))
    assert sizes == [2000] * (n // 2000)
    assert bool(mapped) == (shared == "1")


def test_positions_and_ranges_name_the_lines_of_the_files(job: Any) -> None:
    job.write(3000)
    job.up()
    job.apply()
    text = {path.name: path.read_bytes() for path in job.data.glob("*.tsv")}
    with headrace.dataset("rows").batches(128) as stream:
        for b in stream:
            names = {r.segment: Path(r.name).name for r in b.ranges}
            at = b.positions()
            for i, p in zip(b["id"].tolist(), at):
                line = job.line(i).encode()
                begin = int(p["offset"])
                assert text[names[int(p["segment"])]][begin : begin + len(line)] == line
            assert sum(r.rows for r in b.ranges) == len(b)
            assert all(r.partition == "files:rows" for r in b.ranges)
            stream.step()


def test_a_shuffled_pass_is_the_written_permutation_of_blocks(job: Any) -> None:
    n = job.write(20_000, files=1)
    job.up()
    job.apply(more="shuffle: {seed: 7, block: 16KiB}")
    with headrace.dataset("rows").batches(100) as stream:
        ids, offsets = [], []
        for b in stream:
            ids.extend(b["id"].tolist())
            offsets.extend(b.offsets.tolist())
            stream.step()
    assert sorted(ids) == list(range(n))
    size = (job.data / "day_0.tsv").stat().st_size
    blocks = -(-size // 16384)
    order = list(dict.fromkeys(o // 16384 for o in offsets))
    assert order == headrace.permutation(np.arange(blocks), blocks, 7).tolist()


def test_a_structured_array_is_read_as_it_was_written_and_shuffled_by_its_bytes(job: Any) -> None:
    rng = np.random.default_rng(5)
    fields = [("id", "<i8"), ("x", "<f4", (2, 3)), ("ok", "?"), ("pixels", "u1", (7,)), ("pad", "u1")]
    rows = np.zeros(5000, np.dtype(fields))
    rows["id"] = np.arange(len(rows))
    rows["x"] = rng.random(rows["x"].shape)
    rows["ok"] = rng.random(len(rows)) < 0.5
    rows["pixels"] = rng.integers(0, 256, rows["pixels"].shape)
    rows[:3000].tofile(job.data / "a.bin")
    rows[3000:].tofile(job.data / "b.bin")
    spec = job.folder / "structs.yaml"
    spec.write_text(
        f"""
name: structs
files: {{root: {job.data}}}
decode:
  format: binary
  record_size: {rows.itemsize}
  columns:
    - {{name: id, dtype: int64}}
    - {{name: x, dtype: float32, shape: [2, 3]}}
    - {{name: ok, dtype: bool}}
    - {{name: pixels, dtype: bytes, shape: [7]}}
shuffle: {{seed: 3, block: 1000}}
"""
    )
    job.up()
    job.headrace("dataset", "apply", "-f", str(spec))
    ids = []
    with headrace.dataset("structs").batches(100) as stream:
        for b in stream:
            want = rows[b["id"]]
            assert np.array_equal(b["x"], want["x"])
            assert np.array_equal(b["ok"], want["ok"])
            assert np.array_equal(b["pixels"].data.reshape(-1, 7), want["pixels"])
            ids.extend(b["id"].tolist())
            stream.step()
    assert sorted(ids) == list(range(len(rows)))
    assert ids != sorted(ids)


def test_auto_and_untracked_loops_reach_the_end(job: Any) -> None:
    n = job.write(5000)
    job.up()
    job.apply("a")
    job.apply("u")
    for name, options in (("a", {"ack": "auto"}), ("u", {"track": False})):
        with headrace.dataset(name).batches(64, **options) as stream:
            assert sum(len(b) for b in stream) == n


def test_columns_are_chosen_and_wrong_names_are_told(job: Any) -> None:
    job.write(100)
    job.up()
    job.apply()
    with headrace.dataset("rows").batches(100, columns=["word", "id"]) as stream:
        b = next(stream)
        assert set(b) == {"word", "id"}
        stream.step()
    with pytest.raises(headrace.DatasetError, match="nope"):
        headrace.dataset("rows").batches(10, columns=["nope"])
    with pytest.raises(headrace.DatasetError, match=r"nothing.*rows|rows.*nothing") as told:
        headrace.dataset("nothing").batches(10)
    assert str(told.value).count("there is") == 1  # the message has the hint already, so it comes once


TRAINER = """
import headrace, os, sys, time
with headrace.dataset("rows").batches(50) as stream:
    for b in stream:
        print("got", *b["id"].tolist(), flush=True)
        if b.number == int(os.environ.get("HOLD", "0")):
            time.sleep(100_000)
        time.sleep(float(os.environ.get("PAUSE", "0")))
        stream.step()
        print("stepped", len(b), flush=True)
print("end", flush=True)
"""


def applied(out: str) -> list[int]:
    """The ids of the records that are in the model, from a trainer's output."""
    ids: list[int] = []
    got: list[int] = []
    for line in out.splitlines():
        word, *rest = line.split()
        if word == "got":
            got = [int(v) for v in rest]
        elif word == "stepped":
            ids.extend(got)
    return ids


def whole(ids: list[int], n: int) -> bool:
    """Whether every record came once. Prints the runs of records that did not."""
    counts = Counter(ids)
    odd = [i for i in range(n) if counts[i] != 1]
    for i in odd:
        if i - 1 not in counts or counts[i - 1] == 1:
            print(f"record {i} and on: {counts[i]} times")
    print(f"{len(odd)} of {n} records")
    return not odd


def test_a_killed_trainers_rows_go_to_another(job: Any) -> None:
    n = job.write(20_000)
    job.up()
    job.apply()
    victim = job.trainer(TRAINER, RANK="0", WORLD_SIZE="2", PAUSE="0.01", HOLD="21")
    victim.printed(20)
    other = job.trainer(TRAINER, RANK="1", WORLD_SIZE="2", PAUSE="0.002")
    victim.printed(41)  # it has a batch in hand, so the other trainer cannot reach the end of the data
    other.printed(2)
    victim.process.kill()
    first, out = applied(victim.ended()), other.ended()
    assert out.endswith("end\n"), out[-1000:] + job.logs()
    second = applied(out)
    counts = Counter(first + second)
    assert set(counts) == set(range(n))
    # Only the yielded, unstepped batch of the killed trainer may come again, and a stepped one whose
    # step had not left the process.
    assert sum(c - 1 for c in counts.values()) <= 100


@pytest.mark.parametrize("more", ["", "shuffle: {seed: 7, block: 16KiB}"])
def test_trainers_go_on_with_an_agent_that_was_killed_and_started_again(job: Any, more: str) -> None:
    n = job.write(20_000)
    master = job.start(
        "master", "--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s", "--allow-root", str(job.folder)
    )
    address = job.folder / "state" / "master.addr"
    deadline = time.monotonic() + 120
    while not address.exists():
        assert master.poll() is None, job.logs()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    options = ("agent", "--name", "a1", "--socket", job.socket, "--allow-root", str(job.folder))
    agent = job.start(*options)
    job.await_socket(agent)
    job.apply(more=more)
    trainer = job.trainer(TRAINER, PAUSE="0.01")
    trainer.printed(20)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    job.start(*options)
    out = trainer.ended()
    assert out.endswith("end\n"), out[-1000:] + job.logs()
    assert whole(applied(out), n), job.logs()


def test_a_trainer_goes_on_when_the_master_is_killed_and_started_again(job: Any) -> None:
    n = job.write(20_000)
    job.env["HEADRACE_LISTEN"] = f"127.0.0.1:{free_port()}"
    master_options = ("master", "--http", "off", "--session-ttl", "20s", "--allow-root", str(job.folder))
    master = job.start(*master_options)
    address = job.folder / "state" / "master.addr"
    deadline = time.monotonic() + 120
    while not address.exists():
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.01)
    job.env["HEADRACE_LISTEN"] = address.read_text().split()[0]
    agent = job.start("agent", "--name", "a1", "--socket", job.socket, "--allow-root", str(job.folder))
    job.await_socket(agent)
    job.apply()
    trainer = job.trainer(TRAINER, PAUSE="0.01")
    trainer.printed(20)
    master.send_signal(signal.SIGKILL)
    master.wait()
    job.start(*master_options)
    out = trainer.ended()
    assert out.endswith("end\n"), out[-1000:] + job.logs()
    assert whole(applied(out), n), job.logs()


def test_run_starts_trainers_with_their_ranks(job: Any) -> None:
    n = job.write(5000)
    script = job.folder / "train.py"
    script.write_text(
        "import headrace, sys\n"
        "trainer = headrace.init()\n"
        "rows = 0\n"
        "with headrace.dataset('rows').batches(50) as stream:\n"
        "    for b in stream:\n        rows += len(b)\n        stream.step()\n"
        "print('rank', trainer.rank, 'of', trainer.world_size, 'rows', rows)\n"
    )
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows"))
    out = job.headrace("run", "-f", str(spec), "--nproc-per-node", "2", "--", sys.executable, str(script))
    words = [line.split() for line in out.stdout.splitlines() if "rank" in line]
    assert sorted(w[w.index("rank") + 1] for w in words) == ["0", "1"]
    assert sum(int(w[-1]) for w in words) == n


def test_a_failed_dataset_names_the_range_that_changed(job: Any) -> None:
    job.write(50_000)
    job.up()
    job.apply()
    stream = headrace.dataset("rows").batches(100)
    next(stream)
    stream.step()
    for path in job.data.glob("*.tsv"):
        path.write_text("rewritten\n")
    with pytest.raises(headrace.DatasetError, match=r"day_\d.tsv"):
        while True:
            next(stream)
            stream.step()
    stream.close()


def test_ctrl_c_leaves_no_process_and_no_socket_behind(job: Any) -> None:
    job.write(20_000)
    up = job.up()
    job.apply()
    trainer = job.trainer(TRAINER, PAUSE="0.01")
    trainer.printed(1)
    for process in (trainer.process, up):
        process.send_signal(signal.SIGINT)
        process.wait(300)
    assert not os.path.exists(job.socket)
