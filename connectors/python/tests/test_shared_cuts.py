"""A cut that two checkpoints have: one in memory and one on storage, or in two folders. The master keeps
it as long as one of them needs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import CALL, Agent
from headrace import _cuts, _slots
from headrace import _manifest as manifest
from saving import Agents, stepped


def master(agent: Agent) -> None:
    """The agent answers as one with a replicated model does: a step has one cut. It writes nothing itself."""
    of_step: dict[int, str] = {}

    def answer(call: dict[str, Any]) -> dict[str, Any] | None:
        if call["call"] == "persist":
            return {"code": "refused", "reason": "it cannot read the memory"}
        if call["call"] == "ask":
            cut = of_step.setdefault(call["step"], call["cut"])
            body = {**agent.body(cut, call["step"]), "order": len(of_step)}
            return {"cut": cut, "step": call["step"], "path": call["path"], "body": body}
        return None

    agent.answer = answer


def dropped(agent: Agent) -> list[str]:
    return [c["cut"] for c in agent.of(CALL) if c["call"] == "drop"]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "memory"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(root))
    return root


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_a_checkpoint_on_storage_stays_when_its_slot_in_memory_is_used_again(
    agents: Agents, tmp_path: Path, memory: Path, model: str
) -> None:
    agent = agents(model=model, total=300)
    master(agent)
    cuts = []
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path / "ckpt", stream, memory=True) as ck:
            for n in range(8):
                saved = ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.full(9, n)}, storage=n % 4 == 0)
                saved.wait(300)
                cuts.append(saved.cut)
        agent.wait(lambda: len(dropped(agent)) == 4)
        stored = [cuts[0], cuts[4]]
        assert dropped(agent) == [cut for cut in cuts[:6] if cut not in stored]
        assert list(agent.bound) == stored


def test_a_checkpoint_that_an_earlier_process_has_left_in_memory_and_on_storage_stays(
    agents: Agents, tmp_path: Path, memory: Path
) -> None:
    agent = agents(model="private", total=300)
    master(agent)
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path / "ckpt", stream, memory=True)
        saved = [ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.ones(9)}, storage=s) for s in (True, False)]
        saved[0].wait(300)
        saved[1].wait(300)
        ck._end_memory(ended=False)
        stream._trainer.to_storage = _cuts.ToStorage()  # as a process that knows nothing
        with headrace.Checkpointer(tmp_path / "ckpt", stream, memory=True) as ck:
            for _ in range(2):
                ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.ones(9)}, storage=False).wait(300)
        agent.wait(lambda: dropped(agent) == [saved[1].cut])


def test_a_step_that_is_saved_in_memory_and_in_another_folder_stays_there(
    agents: Agents, tmp_path: Path, memory: Path
) -> None:
    agent = agents(model="replicated", total=300)
    master(agent)
    with headrace.dataset("clicks").batches(10) as stream:
        fast = headrace.Checkpointer(tmp_path / "fast", stream, memory=True)
        slow = headrace.Checkpointer(tmp_path / "slow", stream)
        cuts = []
        for n in range(4):
            step = stepped(stream, 1, np.zeros(1))
            fast.save(step, {"n": np.ones(9)}, storage=False).wait(300)
            if n == 0:
                slow.save(step, {"n": np.ones(9)}).wait(300)
            cuts.append(fast._last.cut if fast._last else None)
        agent.wait(lambda: dropped(agent) == [cuts[1]])
        fast.close()
        slow.close()


def test_retention_in_one_folder_does_not_take_the_records_of_a_checkpoint_in_another_one(
    agents: Agents, tmp_path: Path
) -> None:
    agent = agents(model="replicated", total=300)
    master(agent)
    with headrace.dataset("clicks").batches(10) as stream:
        newest = headrace.Checkpointer(tmp_path / "newest", stream, keep=1)
        archive = headrace.Checkpointer(tmp_path / "archive", stream, keep=2)
        for n in range(7):
            step = stepped(stream, 1, np.zeros(1))
            newest.save(step, {"n": n}).wait(300)
            if n % 2 == 0:
                archive.save(step, {"n": n}).wait(300)
        newest.close()
        archive.close()
        agent.wait(lambda: len(dropped(agent)) == 5)
    kept = {m.step: m.cut_id for name in ("newest", "archive") for m in manifest.find(str(tmp_path / name))}
    assert sorted(kept) == [5, 7]
    assert set(agent.bound) == set(kept.values())
    assert len(os.listdir(tmp_path / "newest")) == 1


def test_a_save_that_fails_does_not_drop_the_checkpoint_of_another_folder(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="replicated", total=300)
    master(agent)

    class Full(headrace.Checkpointer):
        def _reached(self, point: str) -> None:
            if point == "manifest":
                raise OSError(28, "No space left on device")

    with headrace.dataset("clicks").batches(10) as stream:
        good, full = headrace.Checkpointer(tmp_path / "good", stream), Full(tmp_path / "full", stream)
        step = stepped(stream, 1, np.zeros(1))
        saved = good.save(step, {"n": 1})
        saved.wait(300)
        with pytest.raises(OSError, match="No space"):
            full.save(step, {"n": 1}).wait(300)
        good.close()
        full.close()
        assert list(agent.bound) == [saved.cut]
        assert dropped(agent) == []
