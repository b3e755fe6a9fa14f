from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace import _ended


class Clocks:
    """Both clocks of a machine. They move only while somebody sleeps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ran = 0.0
        self.ahead = 0.0  # seconds by which the wall clock was set ahead
        self.began = time.time()
        patch.setattr(time, "time", lambda: self.began + self.ran + self.ahead)
        patch.setattr(time, "monotonic", lambda: self.ran)
        patch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.ran += seconds


def waited(clocks: Clocks, folder: Path, at: dict[float, Callable[[], None]]) -> float:
    """How many seconds wait() took. at: what happens meanwhile, by the second at which it happens."""

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
    _ended.say(str(tmp_path))  # the run before has left its file
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


def test_only_a_file_of_this_run_is_of_this_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _ended.of_this_run(str(tmp_path)), "there is no file"
    monkeypatch.setenv(_ended.RUN, "one")
    assert not _ended.of_this_run(str(tmp_path)), "there is no file"
    _ended.say(str(tmp_path))
    assert _ended.of_this_run(str(tmp_path))
    # A watch ignores a file that was there before it: a server may have been started again.
    assert not _ended.Watch(str(tmp_path)).over()
    for run in ("another", ""):
        monkeypatch.setenv(_ended.RUN, run)
        assert not _ended.of_this_run(str(tmp_path))
    _ended.say(str(tmp_path))  # the file names no run, because this one was started by hand
    assert not _ended.of_this_run(str(tmp_path))
    for text in ("", "[]", '{"ended": 1}'):  # torn; of an older version
        (tmp_path / _ended.ENDED).write_text(text)
        monkeypatch.setenv(_ended.RUN, "one")
        assert not _ended.of_this_run(str(tmp_path))


def test_an_end_stays_if_no_chief_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    _ended.say(str(tmp_path))
    assert _ended.stays(str(tmp_path), 60)
    assert 60 <= clocks.ran <= 61


def test_an_end_does_not_stay_if_a_chief_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may train twice, and its second worker may start before its second chief."""
    clocks = Clocks(monkeypatch)
    _ended.say(str(tmp_path))
    seen = _ended._seen

    def away(folder: str) -> None:
        raise OSError("a stale handle, says the test")

    def sleep(seconds: float) -> None:
        clocks.sleep(seconds)
        monkeypatch.setattr(_ended, "_seen", away if 10 < clocks.ran < 20 else seen)
        if clocks.ran >= 59:
            _ended.remove(str(tmp_path))

    monkeypatch.setattr(time, "sleep", sleep)
    assert not _ended.stays(str(tmp_path), 60)
    assert 59 <= clocks.ran < 60


class Played(threading.Event):
    """An event on the played clock: wait() moves the clock and calls the functions of `at` that are due.
    A function that returns True sets the event."""

    def __init__(self, clocks: Clocks, at: dict[float, Callable[[], object]]) -> None:
        super().__init__()
        self._clocks, self._at = clocks, at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clocks.sleep(timeout)
        for when in [w for w in self._at if w <= self._clocks.ran]:
            if self._at.pop(when)() is True:
                self.set()
        return self.is_set()


def test_an_end_is_taken_back_if_a_chief_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chief's program fails after it has said the end, and is started again. A worker goes on training."""
    clocks, folder = Clocks(monkeypatch), str(tmp_path)
    over, limits, seen = threading.Event(), iter([60.0, 5.0]), {}

    def look() -> None:
        seen[clocks.ran] = over.is_set()

    at: dict[float, Callable[[], object]] = {
        5.0: look,
        10.0: lambda: _ended.say(folder),
        20.0: look,
        69.0: lambda: _ended.remove(folder),
        80.0: look,
        200.0: lambda: _ended.say(folder),
    }
    watch = _ended.Watch(folder)
    assert _ended.follow(watch, Played(clocks, at), over, lambda: next(limits))
    assert list(seen.values()) == [False, True, False]
    assert over.is_set()
    assert 205 <= clocks.ran <= 206


@pytest.mark.parametrize("at", [5.0, 30.0])
def test_nothing_is_followed_when_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    clocks, folder = Clocks(monkeypatch), str(tmp_path)
    done = Played(clocks, {10.0: lambda: _ended.say(folder), at: lambda: True})
    over = threading.Event()
    assert not _ended.follow(_ended.Watch(folder), done, over, lambda: 60.0)
    assert clocks.ran == at
    assert over.is_set() == (at > 10)


def test_a_folder_that_is_away_changes_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the folder is away, the job does not end, and gets no more time."""
    clocks, folder = Clocks(monkeypatch), str(tmp_path)
    seen, over, were = _ended._seen, threading.Event(), []

    def away(folder: str) -> None:
        raise OSError("a stale handle, says the test")

    def back() -> None:
        were.append(over.is_set())
        monkeypatch.setattr(_ended, "_seen", seen)

    at: dict[float, Callable[[], object]] = {
        2.0: lambda: monkeypatch.setattr(_ended, "_seen", away),
        4.0: back,
        10.0: lambda: _ended.say(folder),
        20.0: lambda: monkeypatch.setattr(_ended, "_seen", away),
        40.0: back,
    }
    assert _ended.follow(_ended.Watch(folder), Played(clocks, at), over, lambda: 60.0)
    assert were == [False, True]
    assert 70 <= clocks.ran <= 71


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
    assert watch.over(), "the chief of this run has said the end"
