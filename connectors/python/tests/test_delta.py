"""Deltas: what is saved of a table, what a restore makes of it, and what is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _delta, _restore, _state
from headrace import _manifest as manifest
from saving import Agents, stepped

ROWS = 1000


def loaded(path: str) -> Any:
    m = manifest.load(os.path.join(path, manifest.FILE_NAME))
    assert _restore._verified(m) is None
    return _restore._load(m, 0)


def size(path: str) -> int:
    return sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))


class Model:
    """A table and a dense part. A step changes a few rows of the table."""

    def __init__(self) -> None:
        self.table = np.zeros((ROWS, 8), np.float32)
        self.dense = np.zeros(3)

    def learn(self, ck: headrace.Checkpointer, rows: list[int]) -> None:
        np.add.at(self.table, rows, 1)
        self.dense += 1
        ck.touch("tables.0", np.array(rows))

    @property
    def state(self) -> dict[str, Any]:
        return {"tables": [self.table], "dense": self.dense, "step": 7}


def same(state: Any, model: Model) -> bool:
    return np.array_equal(state["tables"][0], model.table) and np.array_equal(state["dense"], model.dense)


def test_a_delta_holds_the_rows_that_were_touched_since_the_last_whole_save(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    dice = np.random.default_rng(3)
    model = Model()
    paths, copies = [], []
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"], full_every=4, keep=100) as ck,
    ):
        for _ in range(9):
            model.learn(ck, [int(r) for r in dice.integers(0, ROWS, 5)])
            paths.append(ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300))
            copies.append((model.table.copy(), model.dense.copy()))
    needs = [manifest.load(os.path.join(p, manifest.FILE_NAME)).needs for p in paths]
    ids = [manifest.load(os.path.join(p, manifest.FILE_NAME)).cut_id for p in paths]
    assert needs == [[], [ids[0]], [ids[0]], [ids[0]], [], [ids[4]], [ids[4]], [ids[4]], []]
    assert size(paths[1]) < size(paths[0]) / 5
    for path, (table, dense) in zip(paths, copies):
        state = loaded(path)
        assert np.array_equal(state["tables"][0], table), path
        assert np.array_equal(state["dense"], dense)
        assert state["step"] == 7


def test_a_changed_row_that_nobody_touched_is_an_error_and_the_next_save_is_whole(
    agents: Agents, tmp_path: Path
) -> None:
    agents(model="private")
    model = Model()
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"]) as ck,
    ):
        ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
        model.learn(ck, [1])
        model.table *= np.float32(0.5)  # weight decay: zeros stay zeros
        model.table -= 1
        step = stepped(stream, 1, np.zeros(1))
        untold = r"row \d+ of 'tables\.0' has changed .* touch\(\) was not called with it"
        with pytest.raises(headrace.CheckpointError, match=untold):
            ck.save(step, model.state)
        path = ck.save(step, model.state).wait(300)
        assert manifest.load(os.path.join(path, manifest.FILE_NAME)).needs == []
        assert same(loaded(path), model)


def test_nan_and_minus_zero_are_compared_as_bytes(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    model = Model()
    model.table[:] = np.nan
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"]) as ck,
    ):
        ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
        path = ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
    assert len(manifest.load(os.path.join(path, manifest.FILE_NAME)).needs) == 1
    assert np.isnan(loaded(path)["tables"][0]).all()


def whole_again(ck: headrace.Checkpointer, stream: headrace.Stream, model: Model) -> None:
    path = ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
    assert manifest.load(os.path.join(path, manifest.FILE_NAME)).needs == []
    assert same(loaded(path), model)


def test_what_makes_a_save_whole(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    model = Model()
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"], full_every=100, keep=100) as ck,
    ):
        whole_again(ck, stream, model)
        model.learn(ck, list(range(ROWS // 2 + 1)))  # more than half of the rows
        whole_again(ck, stream, model)
        model.table = model.table[:-5].copy()  # it has fewer rows
        whole_again(ck, stream, model)
        model.table = model.table.astype(np.float64)
        whole_again(ck, stream, model)
        model.table = np.concatenate([model.table, np.ones((2 * ROWS, 8))])  # most rows are new
        whole_again(ck, stream, model)
        base = ck._deltas._base
        assert base is not None
        assert base.name is not None
        shutil.rmtree(tmp_path / base.name.folder)  # the base is gone
        whole_again(ck, stream, model)


@pytest.mark.parametrize("rows", [ROWS, 0])
def test_a_delta_of_a_table_that_grows_has_its_new_rows(agents: Agents, tmp_path: Path, rows: int) -> None:
    """New rows are touched before the next save, or never. The large table next to them does not
    change, so that a delta is much smaller than a whole save."""
    agents(model="private")
    table, large = np.zeros((rows, 8), np.float32), np.ones((20 * ROWS, 8), np.float32)
    paths, copies = [], []
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["table", "large"], full_every=4, keep=100) as ck,
    ):
        for n in range(7):
            path = ck.save(stepped(stream, 1, np.zeros(1)), {"table": table, "large": large}).wait(300)
            paths.append(path)
            copies.append(table.copy())
            table = np.concatenate([table, np.full((30, 8), n, np.float32)])
            some = [len(table) - 1, len(table) - 20, len(table) - 30]
            table[some] += 1
            ck.touch("table", some)
            if n:
                table[n] += 5
                ck.touch("table", [n])
    needs = [manifest.load(os.path.join(p, manifest.FILE_NAME)).needs for p in paths]
    assert [len(n) for n in needs] == [0, 1, 1, 1, 0, 1, 1]
    for path, copy in zip(paths, copies):
        assert np.array_equal(loaded(path)["table"], copy), path


def test_retention_never_removes_a_base_that_is_needed(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    model = Model()
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"], full_every=5, keep=1) as ck,
    ):
        there = []
        for n in range(7):
            model.learn(ck, [n])
            path = ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
            there.append(len(manifest.find(str(tmp_path))))
            assert same(loaded(path), model)
    assert there == [1, 2, 2, 2, 2, 1, 2]


def test_a_delta_without_its_base_does_not_verify(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    model = Model()
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=["tables.0"]) as ck,
    ):
        base = Path(ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300))
        model.learn(ck, [5])
        delta = ck.save(stepped(stream, 1, np.zeros(1)), model.state).wait(300)
    m = manifest.load(os.path.join(delta, manifest.FILE_NAME))
    assert _restore._verified(m) is None
    data = bytearray((base / "state.safetensors").read_bytes())
    data[-1] ^= 1
    (base / "state.safetensors").write_bytes(data)
    assert "its base does not verify" in str(_restore._verified(m))
    shutil.rmtree(base)
    assert "copy both" in str(_restore._verified(m))
    with pytest.raises(headrace.CheckpointError, match="copy both"):
        _restore._load(m, 0)


def test_a_small_table_may_be_touched_whole_and_a_table_may_be_empty(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    state = {"large": np.zeros((500, 8)), "small": np.zeros((3, 2)), "empty": np.zeros((0, 4)), "flat": np.zeros(5)}
    names = ["large", "small", "empty", "flat"]
    with (
        headrace.dataset("clicks").batches(1) as stream,
        headrace.Checkpointer(tmp_path, stream, deltas=names) as ck,
    ):
        ck.save(stepped(stream, 1, np.zeros(1)), state).wait(300)
        state["small"] += 1
        state["flat"][2] = 4
        ck.touch("small", [0, 1, 2])
        ck.touch("flat", [2])
        path = ck.save(stepped(stream, 1, np.zeros(1)), state).wait(300)
    assert len(manifest.load(os.path.join(path, manifest.FILE_NAME)).needs) == 1
    back = loaded(path)
    assert all(np.array_equal(back[name], state[name]) for name in names)


def test_misuse_of_deltas_is_told(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(1) as stream:
        with pytest.raises(ValueError, match="full_every=0"):
            headrace.Checkpointer(tmp_path, stream, full_every=0)
        with pytest.raises(TypeError, match=r"deltas=\[3\]"):
            headrace.Checkpointer(tmp_path, stream, deltas=[3])  # type: ignore[list-item]
        with headrace.Checkpointer(tmp_path, stream, deltas=["t"]) as ck:
            step = stepped(stream, 1, np.zeros(1))
            with pytest.raises(TypeError, match="deltas= names 't', which is not in the state"):
                ck.save(step, {"u": np.ones(3)})
            with pytest.raises(TypeError, match="state 't' is a list: deltas= names arrays"):
                ck.save(step, {"t": [1]})
            with pytest.raises(ValueError, match=r"touch\('u'\): deltas= names 't'"):
                ck.touch("u", [1])
            ck.save(step, {"t": np.ones((3, 2))}).wait(300)
            with pytest.raises(IndexError, match=r"touch\('t'\): no row -1: they are counted from 0"):
                ck.touch("t", [0, -1])
            with pytest.raises(TypeError, match="whole numbers"):
                ck.touch("t", [0.5])
            ck.touch("t", [])
            ck.touch("t", [0, 3])  # allowed: the table may grow before the save
            step = stepped(stream, 1, np.zeros(1))
            with pytest.raises(
                headrace.CheckpointError, match=r"was called with row 3, and the table has 3 rows, .*whole"
            ):
                ck.save(step, {"t": np.ones((3, 2))})
            path = ck.save(step, {"t": np.ones((3, 2))}).wait(300)
            assert manifest.load(os.path.join(path, manifest.FILE_NAME)).needs == []


def test_a_failed_save_of_the_base_makes_the_next_one_whole() -> None:
    deltas = _delta.Deltas(["t"], 10, "/nowhere")
    captured = deltas.capture(1, {"t": np.zeros((4, 2))}, frozenset())
    assert captured.base is None
    deltas.failed()
    assert deltas.capture(2, {"t": np.zeros((4, 2))}, frozenset()).base is None


def patched(delta: _state.Captured, base: dict[str, np.ndarray]) -> np.ndarray:
    """The table t that a delta makes of its base."""
    source = _state._Source(delta.arrays, {}, lambda name, of: base[name].copy())
    return np.asarray(_state._build(delta.tree, source)["t"])


@pytest.mark.parametrize("seed", range(40))
def test_whichever_copy_in_memory_goes_to_storage_its_delta_is_that_copy(seed: int) -> None:
    """Copies are taken. Some wait for storage, some are replaced by newer ones, some fail. Rows are
    touched all the time, also between taking a copy and writing it to storage."""
    dice = np.random.default_rng(seed)
    rows = 300
    table, other = np.zeros((rows, 4)), np.zeros(3)
    deltas = _delta.Deltas(["t"], full_every=6, directory="/ckpt", has=lambda path: True)
    held: dict[str, tuple[int, _state.Captured]] = {}  # copies in memory: cut -> (step, copy)
    stored: dict[str, dict[str, np.ndarray]] = {}  # whole checkpoints on storage, by cut
    met = {"delta": 0, "grown": 0, "whole": 0}
    for step in range(1, 400):
        if dice.random() < 0.05:  # the table grows
            table = np.concatenate([table, dice.normal(size=(3, 4))])
            rows += 3
        elif dice.random() < 0.01:
            rows -= 5
            table = table[:rows].copy()
        some = dice.integers(0, rows, int(dice.integers(1, 8)))
        table[some] += dice.normal(size=(len(some), 4))
        other += 1
        deltas.touch("t", some)
        if dice.random() < 0.6:
            flat = deltas.flatten({"t": table, "other": other})
            held[f"{step:016x}"] = (step, _state.capture({"t": table, "other": other}))
            deltas.holds(f"{step:016x}", deltas.copied(flat))
        if held and dice.random() < 0.3:
            cut = sorted(held)[-int(dice.integers(1, 3)) :][0]
            at, copy = held[cut]
            held = {c: h for c, h in held.items() if c > cut}
            delta = deltas.of_copy(cut, at, copy.tree, copy.arrays)
            if dice.random() < 0.1:
                continue  # its write fails
            if delta is None:
                stored[cut] = copy.arrays
                met["whole"] += 1
            else:
                assert delta.base is not None
                assert np.array_equal(patched(delta, stored[delta.base.cut]), copy.arrays["t"]), step
                assert len(delta.arrays["t"]) < len(copy.arrays["t"])
                met["delta"] += 1
                met["grown"] += len(stored[delta.base.cut]["t"]) < len(copy.arrays["t"])
            deltas.stored(cut, at, copy.tree, copy.arrays, f"/ckpt/step-{cut}", whole=delta is None)
    assert met["delta"] > 10, met
    assert met["grown"] > 2, met
    assert met["whole"] > 5, met


def test_a_delta_of_a_copy_in_memory_finds_rows_that_nobody_touched() -> None:
    deltas = _delta.Deltas(["t"], 10, "/ckpt", has=lambda path: True)
    table = np.zeros((50, 2))

    def copy(step: int) -> tuple[Any, Any]:
        flat = _state.capture({"t": table})
        deltas.holds(f"{step:016x}", deltas.copied(deltas.flatten({"t": table})))
        return flat.tree, flat.arrays

    deltas.stored(f"{1:016x}", 1, *copy(1), "/ckpt/a", whole=True)
    table += 1
    with pytest.raises(headrace.CheckpointError, match=r"row \d+ of 't' has changed .* The next save is whole"):
        deltas.of_copy(f"{2:016x}", 2, *copy(2))
    assert deltas.of_copy(f"{3:016x}", 3, *copy(3)) is None
