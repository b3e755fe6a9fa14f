"""What a Checkpointer says of records that are in no checkpoint, and of a save that is not exact."""

from __future__ import annotations

import logging
from pathlib import Path

import headrace
import numpy as np
import pytest
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
        next(stream)  # yielded, and in no model
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
            saved.wait(60)
    headrace.shutdown()
    assert [line[:28] for line in said(caplog, UNSAVED)] == ["10 records are in no checkpo"]


def test_a_framework_s_file_covers_what_its_cut_says(
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
        ck.save(stepped(stream, 1, np.zeros(1)), {"w": 1}, exact=exact).wait(60)
    assert said(caplog, "may hold more") == []
    assert caplog.get_records("call") == [r for r in caplog.records if r.levelno < logging.WARNING]
