"""What a Checkpointer says of records that are in no checkpoint, and of a save that is not exact."""

from __future__ import annotations

import logging
from pathlib import Path

import headrace
import numpy as np
import pytest
from headrace._covered import carried
from saving import Agents, stepped


def said(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if what in r.getMessage()]


UNSAVED = "in no checkpoint"


@pytest.mark.parametrize("model", ["private", "replicated", "shared"])
def test_records_after_the_last_save_are_counted_at_the_end(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture, model: str
) -> None:
    agents(model=model)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        ck.save(stepped(stream, 3, np.zeros(1)), {"w": 1}, exact=False)
        stepped(stream, 4, np.zeros(1))
        next(stream)  # yielded, but in no model
        with pytest.warns(headrace.UnsteppedWarning):
            stream.close()
    assert said(caplog, UNSAVED) == []
    headrace.shutdown()
    (line,) = said(caplog, UNSAVED)
    assert line.startswith(f"40 records are in no checkpoint of {tmp_path}: ")
    assert "save after the loop too: ck.save(step, state)" in line


def test_nothing_is_said_after_a_last_save(agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        for _ in range(3):
            ck.save(stepped(stream, 3, np.zeros(1)), {"w": 1})
    headrace.shutdown()
    assert said(caplog, UNSAVED) == []


def test_a_save_that_failed_covers_nothing(agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agents(model="private").answer = lambda call: (
        {"code": "failed", "reason": "no cut today"} if call["call"] == "ask" else None
    )
    with headrace.dataset("clicks").batches(10) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        saved = ck.save(stepped(stream, 1, np.zeros(1)), {"w": 1})
        with pytest.raises(headrace.CheckpointError):
            saved.wait(300)
    headrace.shutdown()
    assert [line[:28] for line in said(caplog, UNSAVED)] == ["10 records are in no checkpo"]


def test_a_file_of_a_framework_covers_the_records_of_its_cut(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        cut = ck.cut(stepped(stream, 2, np.zeros(1)))
        stepped(stream, 1, np.zeros(1))
        (tmp_path / "model.bin").write_bytes(b"weights")
        ck.bind(cut, tmp_path / "model.bin")
    headrace.shutdown()
    assert [line[:26] for line in said(caplog, UNSAVED)] == ["10 records are in no check"]


@pytest.mark.parametrize("model", ["private", "replicated", "shared"])
def test_records_after_the_last_state_dict_are_counted_at_the_end(
    agents: Agents, caplog: pytest.LogCaptureFixture, model: str
) -> None:
    agents(model=model)
    with headrace.dataset("clicks").batches(10) as stream:
        stepped(stream, 2, np.zeros(1))
        stream.state_dict()
        stepped(stream, 3, np.zeros(1))
    headrace.shutdown()
    (line,) = said(caplog, UNSAVED)
    assert line.startswith("30 records are in no checkpoint: ")
    assert ("come again" in line, "do not come again" in line) == (True, model == "shared")
    assert line.endswith("To keep them, save after the loop too, with the state_dict() of the last step")


def test_nothing_is_said_after_a_last_state_dict(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        for _ in range(2):
            stepped(stream, 2, np.zeros(1))
            stream.state_dict()
    headrace.shutdown()
    assert said(caplog, UNSAVED) == []


def test_a_loop_that_only_loads_a_state_dict_is_told_what_it_does_not_save(
    agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    cut = "00000000000000a1"
    agents(model="private").answer = lambda call: {"code": "ok", "cut": cut} if call["call"] == "restore" else None
    with headrace.dataset("clicks").batches(10) as stream:
        stream.load_state_dict({"id": cut, "step": 0, "datasets": []})
        stepped(stream, 2, np.zeros(1))
    headrace.shutdown()
    assert [line[:32] for line in said(caplog, UNSAVED)] == ["20 records are in no checkpoint:"]


def test_records_that_a_checkpointer_has_saved_are_not_reported_as_missing_from_a_state_dict(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        stepped(stream, 1, np.zeros(1))
        stream.state_dict()
        ck.save(stepped(stream, 1, np.zeros(1)), {"w": 1})
    headrace.shutdown()
    assert said(caplog, UNSAVED) == []


def test_the_first_caller_that_says_how_to_save_decides_the_advice(agents: Agents) -> None:
    agents(model="private")
    trainer = headrace.init()
    generic = carried(trainer)
    assert "state_dict()" in generic.how
    assert carried(trainer, "call save()") is generic
    assert carried(trainer, "call another()").how == "call save()"


def test_without_a_checkpointer_nothing_is_said(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        stepped(stream, 2, np.zeros(1))
    headrace.shutdown()
    assert said(caplog, UNSAVED) == []


def test_the_first_inexact_save_of_a_shared_model_is_warned_of_once(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        for _ in range(2):
            ck.save(stepped(stream, 1, np.zeros(1)), {"w": 1})
    (line,) = said(caplog, "may hold more than the records that it lists")
    assert "--model replicated" in line
    assert "exact=False" in line


@pytest.mark.parametrize(("model", "exact"), [("shared", False), ("shared", True), ("private", None)])
def test_a_save_that_is_exact_or_said_not_to_be_warns_of_nothing(
    agents: Agents, tmp_path: Path, caplog: pytest.LogCaptureFixture, model: str, exact: bool | None
) -> None:
    agents(model=model)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        ck.save(stepped(stream, 1, np.zeros(1)), {"w": 1}, exact=exact).wait(300)
    assert said(caplog, "may hold more") == []
    assert caplog.get_records("call") == [r for r in caplog.records if r.levelno < logging.WARNING]
