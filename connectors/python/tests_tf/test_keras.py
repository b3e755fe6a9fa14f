"""Keras: Model.fit and loops with train_step, killed and started again: each record is in the
model once, id by id."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import headrace
import pytest
from by_hand import apply_without_end, await_records, drop

N = 1970  # 99 batches of 20; the last one has 10

MODEL = """
import glob, json, os, signal, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import headrace, headrace.tensorflow, headrace.tensorflow.keras
import tensorflow as tf

N = 1970
place, _, number = os.environ.get("KILL", "").partition(",")
left = int(number or 0)

def at(here):
    global left
    if here == place:
        left -= 1
        if left == 0:
            while here in ("run", "step") and not glob.glob("checkpoints/step-*/headrace-manifest.json"):
                time.sleep(0.01)  # there is something to go back to
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

said, reached = headrace.Stream.step, headrace.Checkpointer._reached
def step(self, *args, **more):
    at("run")
    result = said(self, *args, **more)
    at("step")
    return result
def point(self, where):
    reached(self, where)
    at(where)
headrace.Stream.step, headrace.Checkpointer._reached = step, point

class Count(tf.keras.layers.Layer):
    def build(self, shape):
        self.hist = self.add_weight(name="hist", shape=(N,), initializer="zeros", trainable=False)

    def call(self, ids, training=None):
        if training:
            flat = tf.cast(tf.reshape(ids, [-1]), tf.int32)
            self.hist.assign(self.hist + tf.math.bincount(flat, minlength=N, maxlength=N, dtype=tf.float32))
        return tf.zeros_like(tf.cast(ids, tf.float32))

def make():
    ids, dense = tf.keras.Input((1,), dtype="int64", name="id"), tf.keras.Input((3,), name="dense")
    out = tf.keras.layers.Dense(1, name="top")(dense) + Count(name="count")(ids)
    return tf.keras.Model({"id": ids, "dense": dense}, out)

def label(b):
    return {"id": b["id"][:, None], "dense": b["dense"]}, tf.cast(b["id"] % 2, tf.float32)[:, None]

def report(model, records, begun):
    hist = model.get_layer("count").hist.numpy()
    found = {"records": int(hist.sum()), "wrong": int((hist != 1).sum()), "unstepped": records.unstepped}
    print(json.dumps({"begun": begun, **found}), flush=True)
"""
FIT = (
    MODEL
    + """
headrace.tensorflow._silent.SILENT_SECONDS = 0.5
model = make()
model.compile("adam", "mse", jit_compile=False)
rows = headrace.tensorflow.dataset("rows", 20).map(label)
if os.environ.get("AHEAD"):
    rows = rows.prefetch(4)
callback = headrace.tensorflow.keras.HeadraceCallback(rows, "checkpoints", every=7)
model.fit(rows, callbacks=[callback], verbose=0)
report(model, callback.input, callback.initial_step)
"""
)
MEMORY = FIT.replace("every=7)", "every=7, memory_every=1)").replace(
    "report(model, callback", 'print("from", callback.restored_from, flush=True)\nreport(model, callback'
)
SILENT = FIT.replace("every=7)", '**json.loads(os.environ["WHEN"]))').replace(
    '"rows", 20)', '"rows", 20, max_wait=0.5)'
)
# What the first fit() had pulled ahead and not trained is trained by the second one.
PARTS = (
    MODEL
    + """
model = make()
model.compile("adam", "mse", jit_compile=False)
rows = headrace.tensorflow.dataset("rows", 20).map(label).prefetch(4)
callback = headrace.tensorflow.keras.HeadraceCallback(rows, "checkpoints", every=7)
for steps in (5, 9, None):
    model.fit(rows, callbacks=[callback], verbose=0, steps_per_epoch=steps)
report(model, callback.input, callback.initial_step)
"""
)
LOOP = (
    MODEL
    + """
model, optimizer = make(), tf.keras.optimizers.Adam()
optimizer.build(model.trainable_variables)
rows = headrace.tensorflow.dataset("rows", 20)
records = headrace.tensorflow.input_of(rows)

@tf.function(reduce_retracing=True)
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss

of_optimizer = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
variables = [*model.weights, *of_optimizer]
with headrace.Checkpointer("checkpoints", records.stream) as ck:
    restored = ck.restore()
    step = begun = restored.step if restored else 0
    for variable, value in zip(variables, restored.state if restored else []):
        variable.assign(value)
    for b in rows:
        train_step(*label(b))
        step = records.step(step + 1)
        if step % 7 == 0:
            ck.save(step, variables)
    if step > begun:
        ck.save(step, variables)
report(model, records, begun)
"""
)


@pytest.fixture
def work(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    job.write(N)
    job.up("--model", "replicated")
    job.apply()
    work = Path(job.folder) / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return job


def result(trainer: Any) -> dict[str, Any]:
    text = trainer.ended(900)
    assert trainer.process.returncode == 0, text
    print(text)
    return json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))


PROGRAMS = {"fit": (FIT, ""), "prefetch": (FIT, "1"), "parts": (PARTS, ""), "loop": (LOOP, "")}


@pytest.mark.parametrize(("program", "ahead"), PROGRAMS.values(), ids=PROGRAMS)
def test_killed_in_mid_pass_each_record_is_in_the_model_once(
    work: Any, rng: random.Random, program: str, ahead: str
) -> None:
    for place in ("run", "step", "captured"):
        n = rng.randint(8, 25) if place != "captured" else rng.randint(1, 3)
        killed = work.trainer(program, KILL=f"{place},{n}", AHEAD=ahead)
        text = killed.ended(900)
        assert killed.process.returncode == -signal.SIGKILL, text
    done = result(work.trainer(program, AHEAD=ahead))
    assert done["begun"] > 0
    assert done["records"] == N
    assert done["wrong"] == 0
    assert done["unstepped"] == 0


def test_a_killed_process_comes_back_from_memory(work: Any, rng: random.Random, tmp_path: Path) -> None:
    slots = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    slots.mkdir(mode=0o700)
    try:
        first, second = rng.randint(16, 30), rng.randint(16, 30)
        for n in (first, second):
            killed = work.trainer(MEMORY, KILL=f"step,{n}", HEADRACE_MEMORY_DIR=str(slots))
            text = killed.ended(900)
            assert killed.process.returncode == -signal.SIGKILL, text
        done = work.trainer(MEMORY, HEADRACE_MEMORY_DIR=str(slots))
        text = done.ended(900)
        assert done.process.returncode == 0, text
        assert "from memory" in text, text
        found = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
        # The kill may tear a save. Then the one that was on its way to storage is left.
        least = ((first - 2) // 7 * 7 + second - 2) // 7 * 7
        assert least <= found["begun"] <= first + second - 2, text
        assert (found["records"], found["wrong"], found["unstepped"]) == (N, 0, 0), text
        ends = list(Path(work.folder, "work", "checkpoints").glob(f"step-{-(-N // 20):010}-*/headrace-manifest.json"))
        assert len(ends) == 1, "the last step has no checkpoint on storage"
    finally:
        shutil.rmtree(slots)


@pytest.mark.parametrize("ahead", ["", "1"], ids=["", "prefetch"])
@pytest.mark.parametrize("when", [{"every": 1000}, {"every_secs": 3}])
def test_a_silent_input_comes_into_a_checkpoint(
    job: Any, monkeypatch: pytest.MonkeyPatch, when: dict[str, int], ahead: str
) -> None:
    """An input without an end. A kill in its silence repeats nothing."""
    work = Path(job.folder) / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    first = N - 50
    drop(job, 0, first)
    job.up("--model", "replicated")
    apply_without_end(job)

    def manifests() -> list[Path]:
        return sorted(work.glob("checkpoints/step-*/headrace-manifest.json"))

    for end in (first, N):
        trainer = job.trainer(SILENT, WHEN=json.dumps(when), AHEAD=ahead)
        if end == N:
            drop(job, first, N)
        newest = await_records(job, end, manifests)
        trainer.process.kill()
        trainer.process.wait()
        (hist,) = (v for v in headrace.load(newest.parent)["model"] if v.shape == (N,))
        assert (hist[:end] == 1).all(), job.logs()
        assert not hist[end:].any()


def test_what_keras_would_not_tell_is_refused_by_name(work: Any) -> None:
    several = FIT.replace('"mse", ', '"mse", steps_per_execution=5, ')
    several = several.replace("verbose=0", "verbose=0, steps_per_epoch=99")
    said = work.trainer(several).ended(900)
    assert "steps_per_execution=5: Keras does not tell a callback" in said
    if version("tensorflow-cpu").startswith("2.15"):
        said = work.trainer(several.replace("steps_per_execution=5", "steps_per_execution='auto'")).ended(900)
        assert "steps_per_execution='auto': Keras does not tell a callback" in said
    said = work.trainer(FIT.replace("verbose=0", "verbose=0, epochs=3")).ended(900)
    assert "epochs=3 without steps_per_epoch" in said
    said = work.trainer(FIT.replace(".map(label)", ".map(label).shuffle(5)")).ended(900)
    assert "shuffle() after headrace.tensorflow.dataset()" in said


def test_a_batch_whose_loss_is_no_number_is_neither_stepped_nor_saved(work: Any) -> None:
    """TerminateOnNaN alone would not do: it stops fit(), whose end saves the model."""
    good = 'tf.cast(b["id"] % 2, tf.float32)'
    bad = FIT.replace(good, f'tf.where(b["id"] == 999, float("nan"), {good})')
    assert bad != FIT
    failed = work.trainer(bad.replace("[callback]", "[tf.keras.callbacks.TerminateOnNaN(), callback]"))
    text = failed.ended(900)
    assert failed.process.returncode == 1, text
    (step,) = re.findall(r"FloatingPointError: the loss is nan after step (\d+): that batch is not stepped", text)
    assert "Look at the records (headrace peek rows)" in text, text
    saved = sorted(int(p.parent.name.split("-")[1]) for p in Path("checkpoints").glob("*/headrace-manifest.json"))
    assert saved[-1:] == ([int(step) // 7 * 7] if int(step) >= 7 else []), text
    done = result(work.trainer(FIT))
    assert (done["begun"], done["records"], done["wrong"]) == (int(step) // 7 * 7, N, 0)


def test_a_loss_that_may_be_anything_is_not_looked_at(work: Any) -> None:
    anything = FIT.replace('"mse", ', 'lambda y, z: 0.0 * z + float("inf"), ').replace(
        "every=7)", "every=7, check_loss=False)"
    )
    done = result(work.trainer(anything))
    assert (done["records"], done["wrong"]) == (N, 0)
