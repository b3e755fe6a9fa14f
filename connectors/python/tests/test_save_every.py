"""save_every() against a scripted agent: which steps are saved, and what is left for the end."""

from __future__ import annotations

import logging
from pathlib import Path

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from saving import Agents, calls, stepped


def steps_in(folder: Path) -> list[int]:
    return sorted(m.step for m in manifest.find(str(folder)))


def trained(stream: headrace.Stream, ck: headrace.Checkpointer, steps: int, every: int, w: np.ndarray) -> list[int]:
    """Trains so many steps. Returns the steps that save_every() said it saves."""
    saved = []
    for _ in range(steps):
        step = stepped(stream, 1, w)
        begun = ck.save_every(every, step, {"w": w})
        if begun is not None:
            assert begun.step == step
            saved.append(step)
    return saved


@pytest.mark.parametrize(("steps", "at_end"), [(9, [9]), (8, []), (3, [3])])
def test_each_fourth_step_is_saved_and_the_last_one_once(
    agents: Agents, tmp_path: Path, steps: int, at_end: list[int]
) -> None:
    agent = agents(model="private")
    w = np.zeros(2)
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream, keep=9) as ck:
            due = trained(stream, ck, steps, 4, w)
            assert due == [s for s in (4, 8) if s <= steps]
        assert steps_in(tmp_path) == due + at_end
        assert calls(agent).count("ask") == len(due + at_end)
        restored = headrace.Checkpointer(tmp_path, stream).restore()
    assert restored is not None
    assert restored.step == steps
    assert np.array_equal(restored.state["w"], w)


def test_close_saves_the_last_step_and_a_second_close_nothing(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        trained(stream, ck, 5, 4, np.zeros(2))
        ck.close()
        ck.close()
    assert steps_in(tmp_path) == [4, 5]
    assert calls(agent).count("ask") == 2


def test_a_function_is_called_when_it_is_time(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    called: list[int] = []

    def state() -> dict[str, int]:
        called.append(headrace.init().last_step)
        return {"step": called[-1]}

    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream) as ck:
            for _ in range(5):
                ck.save_every(4, stepped(stream, 1, np.zeros(1)), state)
            assert called == [4]
    assert called == [4, 5]


def test_nothing_is_saved_twice(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    w = np.zeros(1)
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream, keep=9) as ck:
            trained(stream, ck, 5, 4, w)
            ck.save(5, {"w": w})  # the program's own save of the last step
            assert ck.save_every(4, 5, {"w": w}) is None
        assert steps_in(tmp_path) == [4, 5]
        with headrace.Checkpointer(tmp_path, stream) as ck:  # a restored step counts as saved
            assert ck.restore() is not None
            assert ck.save_every(4, 5, {"w": w}) is None
    assert calls(agent).count("ask") == 2


def test_without_a_step_nothing_is_saved(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        assert ck.save_every(4, 0, {}) is None
    assert "ask" not in calls(agent)
    assert steps_in(tmp_path) == []


def test_a_restart_moves_no_save(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    w = np.zeros(1)
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream, keep=9) as ck:
            assert trained(stream, ck, 6, 4, w) == [4]
        with headrace.Checkpointer(tmp_path, stream, keep=9) as ck:
            assert ck.restore() is not None
            assert trained(stream, ck, 3, 4, w) == [8]
    assert steps_in(tmp_path) == [4, 6, 8, 9]


def test_a_step_that_jumps_over_a_multiple_is_saved(agents: Agents, tmp_path: Path) -> None:
    """As in a program that counts records, for example."""
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream, keep=9) as ck:
            saved = []
            for step in (7, 14, 21, 28, 49, 50):
                next(stream)
                stream.step(step)
                if ck.save_every(10, step, {"step": step}):
                    saved.append(step)
    assert saved == [14, 21, 49, 50]
    assert steps_in(tmp_path) == [14, 21, 49, 50]


def test_after_an_error_nothing_more_is_saved(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        for error in (SystemExit("the loss is nan"), KeyboardInterrupt()):
            with pytest.raises(type(error)):
                with headrace.Checkpointer(tmp_path, stream) as ck:
                    trained(stream, ck, 2, 100, np.zeros(1))
                    raise error
    assert steps_in(tmp_path) == []


def test_steps_after_the_last_call_are_not_saved_and_named(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """close() does not save them: the state of the last call may be older or newer than the last step."""
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        with headrace.Checkpointer(tmp_path, stream) as ck:
            trained(stream, ck, 5, 4, np.zeros(1))
            stepped(stream, 1, np.zeros(1))
    with caplog.at_level(logging.WARNING, "headrace"):
        headrace.shutdown()
    assert steps_in(tmp_path) == [4]
    assert f"20 records are in no checkpoint of {tmp_path}" in caplog.text
    assert "use `with` or ck.close(): then the last step is saved, too" in caplog.text


def test_an_error_of_an_earlier_save_is_raised_at_the_next_step(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")

    class Full(headrace.Checkpointer):
        def _reached(self, point: str) -> None:
            if point == "manifest":
                raise OSError(28, "No space left on device")

    with headrace.dataset("clicks").batches(10) as stream:
        ck = Full(tmp_path, stream)
        assert trained(stream, ck, 4, 4, np.zeros(1)) == [4]
        ck._finish()
        with pytest.raises(OSError, match="No space left"):
            trained(stream, ck, 1, 4, np.zeros(1))
        ck.close()  # does not raise the error again
    assert steps_in(tmp_path) == []


def test_a_last_save_that_fails_is_told(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        with pytest.raises(headrace.CheckpointError, match="of step 2: the disk of the master is full"):
            with headrace.Checkpointer(tmp_path, stream) as ck:
                trained(stream, ck, 2, 4, np.zeros(1))
                agent.answer = lambda call: {"code": "refused", "reason": "the disk of the master is full"}


@pytest.mark.parametrize("steps", [0, -4, 1.5, True, "100"])
def test_steps_are_a_number_of_steps(agents: Agents, tmp_path: Path, steps: object) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        step = stepped(stream, 1, np.zeros(1))
        with pytest.raises(ValueError, match=r"save_every\(.*\): how many steps lie between two saves, at least 1"):
            ck.save_every(steps, step, {})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="step 2, but the last step that this rank has reported is 1"):
            ck.save_every(4, 2, {})
