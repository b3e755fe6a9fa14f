from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

import pytest
from headrace import _ended


class Clocks:
    """Both clocks of a machine. They move only while somebody sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ran = 0.0
        self.ahead = 0.0  # what the wall clock was set by
        self.began = time.time()
        patch.setattr(time, "time", lambda: self.began + self.ran + self.ahead)
        patch.setattr(time, "monotonic", lambda: self.ran)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.ran += seconds


def waited(clocks: Clocks, folder: Path, at: dict[float, Callable[[], None]]) -> float:
    """How long wait() took when these things happened at these seconds."""

    def meanwhile() -> None:
        for when in [w for w in at if w <= clocks.ran]:
            at.pop(when)()

    _ended.wait(str(folder), meanwhile)
    return clocks.ran


@pytest.mark.parametrize("hours", [0, 5, -5])
def test_a_clock_that_is_set_changes_no_end_of_a_job(
    hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    _ended.say(str(tmp_path))  # by the run before
    os.utime(tmp_path / _ended.ENDED, (clocks.began - 60, clocks.began - 60))

    def set_clock() -> None:
        clocks.ahead = hours * 3600.0

    def say() -> None:
        _ended.say(str(tmp_path))
        now = time.time()
        os.utime(tmp_path / _ended.ENDED, (now, now))

    took = waited(clocks, tmp_path, {5.0: set_clock, 10.0: lambda: _ended.remove(str(tmp_path)), 300.0: say})
    assert 300 <= took <= 301


def test_a_file_of_an_earlier_run_counts_when_no_chief_has_removed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    _ended.say(str(tmp_path))
    assert _ended.OLD_SECONDS <= waited(clocks, tmp_path, {}) <= _ended.OLD_SECONDS + 1


def test_a_file_of_this_run_counts_at_once_and_one_of_another_run_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(_ended.RUN, "one")
    _ended.say(str(tmp_path))
    assert _ended.Watch(str(tmp_path), this_run=True).over()
    assert not _ended.Watch(str(tmp_path)).over(), "as a server looks: it may have started again"
    for run in ("another", ""):
        monkeypatch.setenv(_ended.RUN, run)
        assert not _ended.Watch(str(tmp_path), this_run=True).over()
    _ended.say(str(tmp_path))  # it says no run, as one that was started by hand
    assert not _ended.Watch(str(tmp_path), this_run=True).over()
    for text in ("", "[]", '{"ended": 1}'):  # torn; of an older version
        (tmp_path / _ended.ENDED).write_text(text)
        monkeypatch.setenv(_ended.RUN, "one")
        assert not _ended.Watch(str(tmp_path), this_run=True).over()


def test_an_old_file_that_is_put_off_counts_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    _ended.say(str(tmp_path))
    watch = _ended.Watch(str(tmp_path), old_seconds=1800)
    clocks.sleep(1799)
    assert not watch.over()
    watch.put_off()
    clocks.sleep(1799)
    assert not watch.over()
    clocks.sleep(2)
    assert watch.over()
    _ended.remove(str(tmp_path))
    assert not watch.over()
    _ended.say(str(tmp_path))
    assert watch.over(), "the chief of this run has said it"
