"""Saves to memory that come faster than storage takes them, against a scripted agent."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _slots
from saving import Agents, stepped


def test_a_slot_is_used_again_when_its_checkpoint_is_on_storage_although_the_next_one_is_on_its_way(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two slots are enough then, and no save takes more memory."""
    root = tmp_path / "memory"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(root))
    agent = agents(model="private", total=300)
    agent.answer = lambda call: (
        {"cut": call["cut"], "body": {**agent.body(call["cut"], call["step"]), "order": call["step"]}}
        if call["call"] == "ask"
        else None
    )
    begun, goes_on = [threading.Event() for _ in range(4)], [threading.Event() for _ in range(4)]

    class Slow(headrace.Checkpointer):
        def _by_agent(self, pinned: Any, deadline: float) -> bool:
            begun[pinned.step].set()
            assert goes_on[pinned.step].wait(300)
            return False

    with headrace.dataset("clicks").batches(10) as stream, Slow(tmp_path / "ckpt", stream, memory=True) as ck:
        assert ck._flash is not None
        for step in (1, 2):
            ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.full(9, step)}).wait_memory(300)
        slots = {path: os.stat(path).st_ino for path in ck._flash.folder.of(0)}
        goes_on[1].set()
        assert begun[2].wait(300)
        saved = ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.full(9, 3)})
        saved.wait_memory(300)
        now = {path: os.stat(path).st_ino for path in ck._flash.folder.of(0)}
        for event in goes_on:
            event.set()
        saved.wait(300)
    assert now == slots


@pytest.mark.parametrize("memory", [False, True])
def test_a_save_needs_no_thread_that_cannot_be_started(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    """A process may have as many threads as it is allowed, and one that ends starts none from Python 3.12 on."""
    root = tmp_path / "memory"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(root))
    agent = agents(model="private", total=300)
    agent.answer = lambda call: (
        {"cut": call["cut"], "body": {**agent.body(call["cut"], call["step"]), "order": call["step"]}}
        if call["call"] == "ask"
        else None
    )
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("headrace-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with headrace.dataset("clicks").batches(10) as stream:
        monkeypatch.setattr(threading.Thread, "start", refused)
        with headrace.Checkpointer(tmp_path / "ckpt", stream, memory=memory) as ck:
            for step in (1, 2):
                saved = ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.full(9, step)})
                assert saved.done
                assert saved.error is None
        restored = headrace.Checkpointer(tmp_path / "ckpt", stream, memory=memory).restore()
    assert restored is not None
    assert restored.step == 2
