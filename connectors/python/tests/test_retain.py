"""Which checkpoints retention removes, and how, against a scripted agent."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _cuts, _publish, _remove, _retain
from headrace import _manifest as manifest
from headrace._errors import CheckpointError
from headrace._retain import removable
from saving import Agents, stepped


def test_old_checkpoints_go_unbound_first_and_pinned_ones_stay(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private", total=300)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=2) as ck:
        paths = []
        for n in range(5):
            paths.append(ck.save(stepped(stream, 1, np.zeros(1)), {"n": np.ones(n)}).wait(300))
            if n == 0:
                Path(paths[0], manifest.FILE_NAME + ".pinned").touch()
        ck.close()
        agent.wait(lambda: len(agent.bound) == 3)
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(paths[i]) for i in (0, 3, 4)]
    assert set(agent.bound.values()) == {os.path.join(paths[i], manifest.FILE_NAME) for i in (0, 3, 4)}


def test_a_checkpoint_that_is_pinned_while_it_is_removed_stays_or_the_pin_is_refused(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master may be away while retention asks it to drop a cut, so this takes long."""
    agent = agents(model="private", total=300)
    drop, begin, marked = _cuts.drop, _remove.begin, []

    def pinned_first(old: manifest.Manifest) -> None:
        if old.step == 1:
            Path(old.path + ".pinned").touch()  # pinned after retention has found it
        begin(old)

    def drops(trainer: Any, cut: str, reason: str) -> None:
        marked.append([p.name for p in tmp_path.glob(f"*-{cut}/*.removing")])
        drop(trainer, cut, reason)

    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=1) as ck:
        first = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        monkeypatch.setattr(_remove, "begin", pinned_first)
        monkeypatch.setattr(_cuts, "drop", drops)
        paths = [ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300) for _ in range(3)]
        ck.close()
        agent.wait(lambda: len(agent.bound) == 2)
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(p) for p in (first, paths[-1])]
    assert marked == [[manifest.FILE_NAME + ".removing"]] * 2
    assert not list(Path(first).glob("*.removing"))


@pytest.mark.parametrize("answer", ["refused", "none"])
def test_the_mark_of_a_removal_stays_while_it_is_not_known_whether_the_cut_was_dropped(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    agents(model="private", total=300)

    def refuses(*_: Any) -> None:
        raise (_cuts.Refused if answer == "refused" else CheckpointError)("the job went back to it")

    monkeypatch.setattr(_cuts, "drop", refuses)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=1) as ck:
        first, _ = [ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300) for _ in range(2)]
        ck.close()
    assert manifest.FILE_NAME in os.listdir(first)
    assert bool(list(Path(first).glob("*.removing"))) == (answer == "none")


def test_a_half_checkpoint_of_long_ago_goes_and_a_strangers_folder_stays(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    half = tmp_path / "step-0000000001-rank-0-00000000000000aa"
    other = tmp_path / "step-0000000001-rank-1-00000000000000bb"
    for folder in (half, other, tmp_path / "notes"):
        folder.mkdir()
        (folder / "state.safetensors").touch()
        for path in (folder, folder / "state.safetensors"):
            os.utime(path, (1, 1))
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        new = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
    assert sorted(os.listdir(tmp_path)) == sorted(["notes", other.name, os.path.basename(new)])


def test_a_checkpoint_that_another_trainer_removes_too_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "state.safetensors").write_bytes(b"x")
    walk = os.walk

    def other_is_faster(*args: Any, **more: Any) -> Any:
        found = list(walk(*args, **more))
        (folder / "state.safetensors").unlink()
        folder.rmdir()
        return found

    monkeypatch.setattr(os, "walk", other_is_faster)
    _remove.remove_folder(str(folder))
    assert not folder.exists()


def made(
    step: int, epoch: int, minute: int, needs: tuple[str, ...] = (), model: str = "private", order: int = 0
) -> manifest.Manifest:
    fields = {
        "model": model,
        "step": step,
        "created": f"2026-01-01T00:{minute:02d}:00Z",
        "cut": {"epoch": epoch, "id": f"{minute:016x}", **({"order": order} if order else {})},
    }
    return manifest.Manifest(f"/nowhere/{minute}", {**fields, "needs": list(needs)})


def gone(found: list[manifest.Manifest], keep: int) -> list[int]:
    return sorted(m.step for m in removable(found, keep, newest=found[-1].path))


@pytest.mark.parametrize("why", ["EIO", "a folder", "newer", "newer and unlike ours"])
def test_what_a_checkpoint_that_cannot_be_read_may_need_stays(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The second checkpoint needs the first one, and is pinned."""
    agents(model="private", total=300)
    load, entries = manifest.load, manifest._entries
    folders: list[str] = []

    def save(ck: headrace.Checkpointer, stream: headrace.Stream) -> None:
        folders.append(ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300))

    def fails(path: str) -> Any:
        if os.path.dirname(path) == folders[1] and why == "EIO":
            raise OSError(errno.EIO, "Input/output error", path)
        return load(path)

    def cannot_list(path: str) -> Any:
        if path == folders[1] and why == "a folder":
            raise OSError(errno.EIO, "Input/output error", path)
        return entries(path)

    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=3) as ck:
        for _ in range(3):
            save(ck, stream)
        first, second = (Path(f, manifest.FILE_NAME) for f in folders[:2])
        fields = load(str(second)).fields
        fields["needs"] = [load(str(first)).cut_id] if why != "newer and unlike ours" else "a filter"
        fields["version"] += "newer" in why
        second.write_bytes(_publish.seal({k: v for k, v in fields.items() if k != "crc64nvme"}))
        Path(f"{second}.pinned").touch()
        monkeypatch.setattr(manifest, "load", fails)
        monkeypatch.setattr(manifest, "_entries", cannot_list)
        ck.keep = 1
        save(ck, stream)
    stay = folders[:2] + folders[3:] if why == "newer" else folders
    assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, stay))


def test_checkpoints_that_the_job_went_back_behind_do_not_count() -> None:
    line = [made(100, 1, 1), made(200, 1, 2), made(300, 1, 3)]
    assert gone(line, 3) == []
    assert gone(line, 1) == [100, 200]
    # The job went back to 100 and went on from there: 200 and 300 were voided.
    assert gone([*line, made(150, 2, 4)], 2) == [200, 300]
    assert gone([*line, made(150, 1, 4)], 2) == [200, 300]  # private: the epoch stays
    assert gone([*line, made(400, 1, 4, needs=(f"{1:016x}",))], 1) == [200, 300]


def test_a_shared_models_saver_that_counts_from_the_start_again_removes_nothing_newer() -> None:
    line = [made(30, 1, 1, model="shared"), made(40, 1, 2, model="shared"), made(50, 1, 3, model="shared")]
    line.append(made(10, 1, 4, model="shared"))  # a new process saves the same model and counts from 0
    assert gone(line, 3) == [30]
    assert gone([*line, made(20, 1, 5, model="shared")], 3) == [30, 40]


@pytest.mark.parametrize("model", ["private", "shared"])
def test_a_clock_that_is_set_back_makes_no_checkpoint_older(model: str) -> None:
    line = [made(100 + n, 1, 50 - 10 * n, model=model, order=n + 1) for n in range(4)]
    assert gone(line, 2) == [100, 101]
    # A checkpoint of an older version has no order number, and counts as older.
    assert gone([made(99, 1, 59, model=model), *line], 3) == [99, 100]


@pytest.mark.parametrize("model", ["private", "replicated"])
def test_after_the_master_lost_its_state_new_checkpoints_stay_and_older_ones_go(model: str) -> None:
    """Epochs and steps begin again, but the order numbers go on."""
    past = [made(800 + n, 3, n, model=model, order=50 + n) for n in range(3)]
    since = [made(10 * n, 1, 10 + n, model=model, order=60 + n) for n in range(1, 4)]
    assert gone([*past, *since], 3) == [800, 801, 802]


def test_a_clock_that_is_set_ahead_makes_no_save_half_that_goes_on(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another trainer of the shared model saves into the same folder meanwhile."""
    agents(model="shared")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        theirs = tmp_path / "step-0000000001-00000000000000aa"
        theirs.mkdir()
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        assert theirs.is_dir()


def test_a_clock_that_was_ahead_from_the_start_makes_no_save_half_that_goes_on(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this machine's clock is wrong. The file system's clock, perhaps a server's, is right."""
    agents(model="shared")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        theirs = tmp_path / "step-0000000001-00000000000000aa"
        theirs.mkdir()
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        monkeypatch.setattr(_retain, "_CLOCK", _retain._CLOCK + 86_400)
        ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        assert theirs.is_dir()
