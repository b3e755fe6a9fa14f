"""Deltas of checkpoints in memory, against the real agent and master: a slot holds the whole state,
and the agent writes a delta of it to storage."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace import _manifest as manifest
from headrace import _restore
from in_memory import ROOT, TRAINER, in_memory, memory, of_end, restored
from seen import checked, ids_of, settings

__all__ = ["memory"]  # a fixture

OPTIONS = {"deltas": ["seen"], "full_every": 5, "keep": 3}
POINTS = ["copying", "captured", "frozen", "sealed", "staged", "files", "manifest", "renamed", "bound"]


def stored(job: Any) -> list[manifest.Manifest]:
    return manifest.find(str(job.folder / "ckpt"))


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_crash_at_every_point_leaves_the_newest_whole_checkpoint_and_correct_deltas(
    job: Any, memory: Path, model: str
) -> None:
    n = job.write(10_000)
    job.up("--model", model)
    job.apply()
    last = met = 0
    for number, point in enumerate(POINTS):
        dies = 20 * (number + 1)
        alone = point in ("files", "manifest")
        how = settings(job, n, die=point, die_after=dies, every=5, stored=True, alone=alone, options=OPTIONS)
        trainer = job.trainer(TRAINER, **how, **{ROOT: str(memory)})
        out = trainer.ended()
        assert trainer.process.returncode == -signal.SIGKILL, out + job.logs()
        assert restored(out)[1:3] == [str(last), str(50 * last)], out + job.logs()
        assert f"\ndies at {point} {dies}\n" in out, out
        assert checked(job, n) > 0
        met += sum(1 for m in stored(job) if m.needs)
        last = max(about["manifest"]["step"] for about in in_memory(job))
        assert last == (dies - 1 if point in ("copying", "captured", "frozen") else dies), (point, out)
        assert all(not about["manifest"].get("needs") for about in in_memory(job)), "a slot holds only a delta"
    assert met > len(POINTS)
    out = job.trainer(TRAINER, **settings(job, n, every=5, options=OPTIONS), **{ROOT: str(memory)}).ended()
    assert restored(out)[1] == str(last), out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out[:2000] + job.logs()
    assert checked(job, n) > 0


def test_without_memory_a_delta_on_storage_is_gone_back_to(job: Any, memory: Path) -> None:
    n = job.write(10_000)
    job.up("--model", "replicated")
    job.apply()
    how = settings(job, n, every=5, stop=48, stored=True, options={**OPTIONS, "keep": 2})
    out = job.trainer(TRAINER, **how, **{ROOT: str(memory)}).ended()
    newest, *_ = stored(job)
    assert newest.step == 45, out
    assert len(newest.needs) == 1
    assert os.path.getsize(os.path.join(newest.folder, "state.safetensors")) < 8 * n + 320_000  # `copies` has 320,000
    for folder in memory.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    out = job.trainer(TRAINER, **settings(job, n, every=5, options=OPTIONS), **{ROOT: str(memory)}).ended()
    assert restored(out)[1:4] == ["45", "2250", "storage"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


def test_a_table_that_grows_goes_to_memory_and_as_deltas_to_storage(job: Any, memory: Path) -> None:
    """The table has a row for each id seen so far. touch() gets new rows before the table has them."""
    n = job.write(10_000, files=1)  # ids come in order
    job.up("--model", "replicated")
    job.apply()
    code = (
        TRAINER.replace('seen = np.zeros(cfg["rows"], np.int64)', "seen = np.zeros(0, np.int64)")
        .replace('seen[:] = restored.state["seen"]', 'seen = restored.state["seen"].copy()')
        .replace(
            '        np.add.at(seen, b["id"], 1)\n',
            '        new = max(0, int(b["id"].max()) + 1 - len(seen))\n'
            "        seen = np.concatenate([seen, np.zeros(new, np.int64)])\n"
            '        np.add.at(seen, b["id"], 1)\n',
        )
    )
    options = {**OPTIONS, "keep": 1000}
    how = settings(job, n, every=5, stop=103, stored=True, options=options)
    out = job.trainer(code, **how, **{ROOT: str(memory)}).ended()
    assert "saved 103" in out, out + job.logs()
    grown = 0
    for m in stored(job):
        seen = _restore._load(m, 0)["seen"]
        counts = np.bincount(ids_of(job, m.cut))
        assert np.array_equal(seen, counts), m.path
        bases = [b for b in stored(job) if b.cut_id in m.needs]
        grown += sum(len(_restore._load(b, 0)["seen"]) < len(seen) for b in bases)
    assert grown > 5, [m.needs for m in stored(job)]
    out = job.trainer(code, **settings(job, n, every=5, options=options), **{ROOT: str(memory)}).ended()
    assert restored(out)[1:4] == ["103", "5150", "memory"], out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()


def test_if_saves_come_faster_than_storage_each_written_one_holds_exactly_its_cut(job: Any, memory: Path) -> None:
    """Each step is saved to storage, and only one in 40 is awaited, so newer saves replace those that wait."""
    n = job.write(10_000)
    job.up("--model", "replicated")
    job.apply()
    options = {**OPTIONS, "keep": 1000}
    how = settings(job, n, every=1, wait=False, settles=40, options=options)
    out = job.trainer(TRAINER, **how, **{ROOT: str(memory)}).ended()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) >= 5  # the awaited ones of 200 steps
    assert any(m.needs for m in stored(job)), [m.path for m in stored(job)]


def test_where_there_is_no_room_for_a_delta_all_of_the_state_is_written(job: Any, memory: Path) -> None:
    n = job.write(4_000)
    job.up("--model", "replicated")
    job.apply()
    code = TRAINER.replace(
        "cfg = json", "from headrace import _staged\n"
        "def no_room(self, *args): raise headrace.CheckpointError('there is no room')\n"
        "_staged.Staged.__init__ = no_room\ncfg = json", 1,
    )  # fmt: skip
    how = settings(job, n, every=5, stored=True, options=OPTIONS)
    out = job.trainer(code, **how, **{ROOT: str(memory)}).ended()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert "is written whole: there is no room" in out, out
    assert checked(job, n) > 0
    assert not any(m.needs for m in stored(job))


def test_a_bit_that_flips_in_a_slot_becomes_no_delta(job: Any, memory: Path) -> None:
    """The bit flips after the slot is complete and before it is written to storage."""
    n = job.write(10_000)
    job.up("--model", "replicated")
    job.apply()
    code = TRAINER.replace(
        "    def _by_agent",
        """    def _persist(self, pinned):
        if pinned.step == 20:
            with open(pinned.path, "r+b") as slot:
                slot.seek(8192 + 100)
                byte = slot.read(1)
                slot.seek(8192 + 100)
                slot.write(bytes([byte[0] ^ 1]))
        return super()._persist(pinned)

    def _by_agent""",
    )
    how = settings(job, n, every=5, stored=True, options=OPTIONS)
    trainer = job.trainer(code, **how, **{ROOT: str(memory)})
    out = trainer.ended()
    assert trainer.process.returncode != 0, out
    assert "the checkpoint of step 20 stays in memory only" in out, out
    assert "have the checksum" in out, out
    assert [m.step for m in stored(job)][:1] == [15], out
    assert checked(job, n) > 0
