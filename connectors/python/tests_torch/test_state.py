"""States with torch tensors, in an environment that has torch: make test-torch."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from headrace import _copying, _delta, _image, _slots, _state
from safetensors.torch import load_file


def through(state: Any, folder: Path) -> Any:
    captured = _state.capture(state)
    _state.write(captured.arrays, str(folder / "s"), {})
    return _state.read(json.loads(json.dumps(captured.tree, allow_nan=False)), [(str(folder / "s"), "")])


def model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    return net, torch.optim.Adam(net.parameters())


def test_a_model_and_its_optimizer_go_on_exactly(tmp_path: Path) -> None:
    torch.manual_seed(1)
    net, adam = model()

    def learn(net: torch.nn.Module, adam: torch.optim.Optimizer) -> list[torch.Tensor]:
        for _ in range(3):
            adam.zero_grad()
            net(torch.randn(5, 4)).square().sum().backward()
            adam.step()
        return [p.detach().clone() for p in net.parameters()]

    learn(net, adam)
    saved = {"model": net.state_dict(), "adam": adam.state_dict(), "rng": torch.get_rng_state(), "np": np.arange(3)}
    captured = _state.capture(saved)
    want = learn(net, adam)  # changes everything that was captured
    _state.write(captured.arrays, str(tmp_path / "s"), {})
    assert "model.0.weight" in load_file(str(tmp_path / "s"))
    back = _state.read(captured.tree, [(str(tmp_path / "s"), "")])
    net, adam = model()
    net.load_state_dict(back["model"])
    adam.load_state_dict(back["adam"])
    torch.set_rng_state(back["rng"])
    assert all(map(torch.equal, learn(net, adam), want))
    assert isinstance(back["np"], np.ndarray)


def test_tensors_of_any_shape_and_type_come_back(tmp_path: Path) -> None:
    state = {
        "bf16": torch.randn(3).bfloat16(),
        "view": torch.arange(12).reshape(3, 4).t(),
        "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(3),
        "bool": torch.tensor([True, False]),
        7: [torch.ones(2, requires_grad=True)],
    }
    back = through(state, tmp_path)
    assert list(back) == list(state)
    for key in ("bf16", "view", "empty", "scalar", "bool"):
        assert back[key].dtype == state[key].dtype
        assert torch.equal(back[key], state[key])
    assert torch.equal(back[7][0], torch.ones(2))


def test_tied_weights_are_stored_once_and_are_one_again(tmp_path: Path) -> None:
    weight = torch.randn(4, 4)
    back = through({"in": weight, "out": weight}, tmp_path)
    assert back["in"] is back["out"]
    assert len(load_file(str(tmp_path / "s"))) == 1


def test_a_tensor_that_is_not_dense_is_named() -> None:
    with pytest.raises(TypeError, match=r"'x\.0' is a torch\.sparse_coo tensor"):
        _state.capture({"x": [torch.eye(3).to_sparse()]})


def test_a_delta_is_made_of_arrays_and_tensors_together() -> None:
    """The base's file holds all of them as tensors."""
    deltas = _delta.Deltas(["t"], 10, "/ckpt", has=lambda path: True)
    state = {"t": np.zeros((50, 2), np.float32), "w": torch.zeros(3)}
    assert deltas.capture(1, state, frozenset()).base is None
    deltas.saved("/ckpt/a", f"{1:016x}")
    deltas.touch("t", [3])
    state["t"][3] = 1
    captured = deltas.capture(2, state, frozenset())
    assert captured.base is not None


@pytest.mark.parametrize("of", [torch.zeros, np.zeros])
@pytest.mark.parametrize("memory", [True, False])
def test_a_delta_of_a_table_that_grows_has_its_new_rows(of: Any, memory: bool) -> None:
    """New rows are touched before any save has them. The state also has a bf16 tensor."""
    deltas = _delta.Deltas(["t"], 10, "/ckpt", has=lambda path: True)
    state = {"t": of((50, 2)), "half": torch.zeros(3).bfloat16()}

    def saved(step: int) -> tuple[_state.Captured, _state.Captured | None]:
        """The copy, and its delta."""
        cut = f"{step:016x}"
        whole = _state.capture(state)
        if memory:
            deltas.holds(cut, deltas.copied(deltas.flatten(state)))
            delta = deltas.of_copy(cut, step, whole.tree, whole.arrays)
            deltas.stored(cut, step, whole.tree, whole.arrays, "/ckpt/a", whole=delta is None)
            return whole, delta
        captured = deltas.capture(step, state, frozenset())
        deltas.saved("/ckpt/a", cut)
        return whole, captured if captured.base is not None else None

    base, delta = saved(1)
    assert delta is None
    for step in range(2, 5):
        rows = len(state["t"])
        deltas.touch("t", torch.tensor([rows + 2, 3]))
        cat = torch.cat if of is torch.zeros else np.concatenate
        state["t"] = cat([state["t"], of((5, 2)) + step])
        state["t"][[rows + 2, 3]] += 1
        whole, delta = saved(step)
        assert delta is not None
        assert len(delta.arrays["t"]) == 1 + 5 * (step - 1)
        source = _state._Source(delta.arrays, {}, lambda name, of: base.arrays[name].clone())
        if of is np.zeros:
            source = source._replace(base=lambda name, of: base.arrays[name].numpy().copy())
        back, want = _state._build(delta.tree, source), _state.build(whole.tree, whole.arrays)
        assert np.array_equal(np.asarray(back["t"]), np.asarray(want["t"])), step
        assert back["half"].dtype == torch.bfloat16


@pytest.mark.parametrize("threads", [1, 3])
def test_a_layout_that_was_made_in_inference_mode_is_copied_to_by_any_thread(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_copying, "PART", 4096)
    monkeypatch.setattr(_copying, "threads", lambda: threads)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        state = {f"w{i}": torch.full((size, 3), float(i)).T for i, size in enumerate((1, 40, 3000))}
        state["b"] = torch.arange(5000, dtype=torch.bfloat16)
        memory = mmap.mmap(-1, 1 << 20)
        with torch.inference_mode():
            flat = _state.flatten(state)
            copy = _copying.Copy(_image.Layout(flat).views(memory))
            copy.run(flat.arrays)
        for tensor in state.values():
            tensor += 1
        copy.run(_state.flatten(state).arrays)
        for name, view in copy._views.items():
            assert torch.equal(view, state[name]), name
    finally:
        torch.set_num_threads(before)


def test_a_view_with_other_values_in_the_same_memory_is_an_array_of_its_own(tmp_path: Path) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    state = {"z": z, "conjugate": z.conj(), "minus": z.conj().imag, "plus": z.imag}
    back = through(state, tmp_path)
    flat = _state.flatten(state)
    memory = mmap.mmap(-1, 1 << 16)
    copy = _copying.Copy(_image.Layout(flat).views(memory))
    copy.run(flat.arrays)
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor.resolve_conj().resolve_neg()), name
        assert torch.equal(copy._views[name], back[name]), name


@pytest.mark.parametrize("take", [_state.capture, _state.flatten])
def test_a_tensor_that_no_file_can_hold_is_named(take: Any) -> None:
    with pytest.raises(TypeError, match=r"'x\.0' is a tensor of torch\.complex128: save one of bool,"):
        take({"x": [torch.zeros(2, dtype=torch.complex128)]})
    with pytest.raises(TypeError, match=r"'x' is on the meta device"):
        take({"x": torch.zeros(2, device="meta")})


@pytest.mark.parametrize("take", [_state.capture, _state.flatten])
def test_an_array_beside_tensors_may_be_backwards_and_of_any_byte_order(take: Any, tmp_path: Path) -> None:
    state = {
        "t": torch.ones(2),
        "big": np.arange(4, dtype=">f4"),
        "back": np.arange(6.0).reshape(2, 3)[:, ::-1],
        "one": np.array(3, ">i8"),
    }
    captured = take(state)
    _state.write(captured.arrays, str(tmp_path / "s"), {})
    back = _state.read(captured.tree, [(str(tmp_path / "s"), "")])
    for name in ("big", "back", "one"):
        assert np.array_equal(back[name], state[name]), name
        assert back[name].shape == state[name].shape


def test_a_delta_with_tensors_can_be_read_from_memory() -> None:
    deltas = _delta.Deltas(["t"], 10, "/ckpt", has=lambda path: True)
    state = {"t": torch.zeros(50, 2), "w": torch.ones(3)}
    cuts = [f"{n:016x}" for n in (1, 2)]
    whole = _state.capture(state)
    deltas.holds(cuts[0], deltas.copied(deltas.flatten(state)))
    deltas.stored(cuts[0], 1, whole.tree, whole.arrays, "/ckpt/a", whole=True)
    deltas.touch("t", [7])
    state["t"][7] = 1
    deltas.holds(cuts[1], deltas.copied(deltas.flatten(state)))
    whole = _state.capture(state)
    delta = deltas.of_copy(cuts[1], 2, whole.tree, whole.arrays)
    assert delta is not None
    layout, memory = _image.Layout(delta), mmap.mmap(-1, 1 << 16)
    memory[_slots.PAGE : _slots.PAGE + len(layout.header)] = layout.header
    _copying.Copy(layout.views(memory)).run(delta.arrays)
    arrays = _image.load(memory, layout.size, delta.tree)
    assert torch.equal(arrays["t"], torch.ones(1, 2))
    assert np.array_equal(arrays["t.rows"], [7])
