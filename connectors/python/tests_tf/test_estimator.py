"""A WideDeep Estimator in one process: killed anywhere and started again, its checkpoints hold
the records that their manifests say, id by id."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
import headrace.tensorflow
import tensorflow as tf
from headrace.tensorflow import _variables

N = 2000  # 100 batches of 20
HERE = Path(__file__).parent


@pytest.fixture
def work(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    job.write(N)
    job.up("--model", "replicated")
    job.apply()
    job.work = Path(job.folder) / "work"
    job.work.mkdir()
    monkeypatch.chdir(job.work)
    return job


def start(job: Any, *args: str, **env: str) -> Any:
    arguments = [str(HERE / "counting.py"), *args]
    code = f"import sys, runpy; sys.argv = {arguments!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    return job.trainer(code, **env)


def ended(trainer: Any) -> dict[str, Any]:
    text = trainer.ended(900)
    assert trainer.process.returncode == 0, text
    print(text)
    return json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))


def killed(trainer: Any) -> None:
    text = trainer.ended(900)
    assert trainer.process.returncode == -signal.SIGKILL, text


def check_bound(job: Any) -> list[str]:
    """Checks that every bound checkpoint holds the records of its manifest. Returns the manifests."""
    out = job.headrace("ckpt", "verify", str(job.work / "model"), check=False)
    assert out.returncode == 0, out.stdout + out.stderr
    found = sorted((job.work / "model").glob("*.headrace-manifest.json"))
    for path in found:
        fields = json.loads(path.read_text())
        prefix = str(path)[: -len(".headrace-manifest.json")]
        hist = tf.train.load_variable(prefix, "hist")
        assert int(tf.train.load_variable(prefix, "global_step")) == fields["step"]
        assert hist.max() <= 1
        parts = [q for d in fields["cut"]["datasets"] for q in d["partitions"]]
        rows = sum(p["records"]["rows"] for q in parts for p in q["passes"])
        rows += sum(q.get("done_records", {}).get("rows", 0) for q in parts)
        assert hist.sum() == rows, (prefix, int(hist.sum()), rows)
    state = tf.train.get_checkpoint_state(str(job.work / "model"))
    steps = sorted(int(p.name.split("-")[1].split(".")[0]) for p in found)
    assert [os.path.basename(p) for p in state.all_model_checkpoint_paths] == [f"model.ckpt-{n}" for n in steps]
    return [str(p) for p in found]


def test_each_record_is_in_the_model_once(work: Any) -> None:
    assert ended(start(work)) | {"newest": ""} == {"newest": "", "step": 100, "records": N, "wrong": 0}
    assert len(check_bound(work)) == 3  # keep_checkpoint_max
    left = {p.name for p in (work.work / "model").glob("model.ckpt-*.index")}
    assert left == {f"model.ckpt-{n}.index" for n in (80, 90, 100)}
    # Nothing is left to train, so another run changes nothing.
    assert ended(start(work))["records"] == N


def test_killed_anywhere_it_goes_on_with_each_record_once(work: Any, rng: random.Random) -> None:
    """Each start goes a little further, and is killed at another place of a step or a save."""
    places = ["run", "step", "captured", "frozen", "manifest", "renamed", "bound"]
    rng.shuffle(places)
    for place in places:
        n = rng.randint(1, 12) if place in ("run", "step") else 1
        killed(start(work, "--every", "5", KILL=f"{place},{n}"))
    done = ended(start(work, "--every", "5"))
    assert done | {"newest": ""} == {"newest": "", "step": 100, "records": N, "wrong": 0}
    check_bound(work)


def test_the_pages_program_has_each_record_once(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (HERE.parents[2] / "docs" / "tensorflow.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    (job.data / "day.tsv").write_text("".join(f"{i % 2}\t0.5\t{i}\t2\tc{i % 50}\n" for i in range(3000)))
    columns = """
    - {name: label, path: "0", dtype: float32}
    - {name: dense, paths: ["1..3"], dtype: float32}
    - {name: cat, path: "4", dtype: int64, hash: {buckets: 1000}}
"""
    spec = job.folder / "clicks.yaml"
    spec.write_text(
        f'name: clicks\nfiles: {{root: {job.data}, paths: ["*.tsv"]}}\ndecode:\n  format: tsv\n  columns:{columns}'
    )
    job.up("--model", "replicated")
    job.headrace("dataset", "apply", "-f", str(spec))
    monkeypatch.chdir(job.folder)
    text = job.trainer(program).ended(900)
    (manifest,) = Path("model").glob("*.headrace-manifest.json")
    assert json.loads(manifest.read_text())["step"] == 3, text
    assert job.headrace("ckpt", "list", "model").stdout.count("model.ckpt-3") >= 1


def test_a_second_train_and_batches_that_are_pulled_ahead_are_exact(work: Any) -> None:
    args = ("--prefetch", "8", "--steps", "7", "--steps", "11")
    killed(start(work, *args, KILL="step,25"))
    done = ended(start(work, *args))
    assert done | {"newest": ""} == {"newest": "", "step": 100, "records": N, "wrong": 0}
    check_bound(work)


def test_an_only_checkpoint_is_not_removed_before_the_next_one_is_bound(work: Any) -> None:
    killed(start(work, "--keep", "1", KILL="captured,3"))
    assert len(check_bound(work)) == 1
    assert ended(start(work, "--keep", "1"))["wrong"] == 0
    assert len(check_bound(work)) == 1


def test_one_process_may_make_several_estimators(tmp_path: Path) -> None:
    for name in ("one", "two"):
        inner = tf.estimator.LinearClassifier([tf.feature_column.numeric_column("x")], str(tmp_path / name))
        assert headrace.tensorflow.estimator(inner).model_dir == str(tmp_path / name)


def test_a_job_of_another_kind_is_refused_by_name(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job.write(100)
    job.up()  # shared
    job.apply()
    monkeypatch.chdir(job.folder)
    text = start(job).ended(900)
    assert "start the master with --model replicated, or name parameter servers in TF_CONFIG" in text


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Path]:
    made = Path("/dev/shm") / f"headrace-test-{os.getpid()}-{tmp_path.name}"
    made.mkdir(mode=0o700)
    yield made
    shutil.rmtree(made)


def test_killed_it_goes_on_from_memory_and_without_memory_from_storage(
    work: Any, rng: random.Random, slots: Path
) -> None:
    def go(**env: str) -> Any:
        return start(work, "--every", "10", "--memory-every", "1", HEADRACE_MEMORY_DIR=str(slots), **env)

    def begins(trainer: Any) -> tuple[int, str]:
        step, source = re.findall(r"^begins after (\d+) ?(\w*)$", trainer.log.read_text(), re.MULTILINE)[0]
        return int(step), source

    # The first kill comes at the end of a step, the second one when a copy is made, or is complete.
    # Both come before their run has saved to storage.
    first, second = rng.randint(4, 9), rng.randint(4, 9)
    trainer = go(KILL=f"step,{first}")
    killed(trainer)
    assert begins(trainer) == (0, "")
    place = rng.choice(["captured", "sealed"])
    trainer = go(KILL=f"{place},{second}")
    killed(trainer)
    at, source = begins(trainer)
    assert source == "memory"
    assert first - 2 <= at <= first
    trainer = go(KILL="step,25")
    killed(trainer)
    again, source = begins(trainer)
    assert source == "memory"
    assert at + second - 2 <= again <= at + second
    for folder in slots.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    trainer = go()
    done = ended(trainer)
    assert begins(trainer) == (again + 20, "storage")
    assert done | {"newest": ""} == {"newest": "", "step": 100, "records": N, "wrong": 0}
    check_bound(work)


def test_what_headrace_run_has_written_from_memory_is_gone_back_to(
    job: Any, monkeypatch: pytest.MonkeyPatch, slots: Path
) -> None:
    """A trainer is killed. `headrace run` writes its last save to storage, and the memory is lost."""
    job.write(N)
    work = Path(job.folder) / "work"
    work.mkdir()
    job.work = work
    monkeypatch.chdir(work)
    (work / "rows.yaml").write_text(job.spec("rows"))
    command = [job.binary, "run", "--model", "replicated", "--max-restarts", "0", "-f", "rows.yaml", "--"]
    command += [sys.executable, str(HERE / "counting.py"), "--every", "1000", "--memory-every", "1"]
    env = {**job.env, "HEADRACE_MEMORY_DIR": str(slots)}
    died = subprocess.run(command, env={**env, "KILL": "step,20"}, capture_output=True, text=True, timeout=900)
    assert "lay in memory only; it is on storage now" in died.stdout + died.stderr
    (written,) = work.glob("model/step-*/headrace-manifest.json")
    for folder in slots.iterdir():
        shutil.rmtree(folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    begun = re.findall(r"begins after (\d+) (\w+)", text)
    assert begun in ([("18", "storage")], [("19", "storage")], [("20", "storage")]), text
    assert '"records": 2000, "wrong": 0' in text
    assert not written.exists()  # TensorFlow's own checkpoint at the end is newer


def test_a_save_in_memory_that_fails_costs_no_other_save(work: Any, slots: Path) -> None:
    """Every save in memory fails. The saves to storage, each tenth step and at the end, succeed."""
    done = ended(start(work, "--memory-every", "1", HEADRACE_MEMORY_DIR=str(slots), FAIL_IN_MEMORY="1"))
    assert done | {"newest": ""} == {"newest": "", "step": 100, "records": N, "wrong": 0}
    assert len(check_bound(work)) == 3


@pytest.mark.parametrize("given", ["nothing", "an operation", "an empty tensor", "a name"])
def test_a_worker_waits_for_the_marker_whatever_else_it_waits_for(given: str) -> None:
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("model", [], tf.float32)
        marker = tf.compat.v1.Variable(True, collections=[], name="marker")
        made = {
            "an operation": tf.no_op,
            "an empty tensor": lambda: tf.constant([]),
            "a name": lambda: tf.constant(["x"]),
        }
        ready = _variables.ready(made[given]() if given in made else None, marker)
        others = {"nothing": {b"model"}, "a name": {b"x"}}.get(given, set())
        with tf.compat.v1.Session() as session:
            assert set(session.run(ready)) == {b"marker", *others}
            session.run([variable.initializer, marker.initializer])
            assert set(session.run(ready)) == others - {b"model"}


def test_variables_that_begin_with_one_tensor_keep_their_own_values() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        first = tf.random.uniform([3])
        for use_resource in (False, True):
            a, b = (tf.compat.v1.Variable(first, use_resource=use_resource) for _ in range(2))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run([tf.compat.v1.assign(a, [1.0, 2, 3]), tf.compat.v1.assign(b, [4.0, 5, 6])])
            state = _variables.values(session)
            session.run(tf.compat.v1.global_variables_initializer())
            _variables.assign(session, state, "the test's state")
            assert session.run([a, b])[0].tolist() == [1, 2, 3]
            assert session.run([a, b])[1].tolist() == [4, 5, 6]


def test_memory_every_is_checked(work: Any) -> None:
    text = start(work, "--memory-every", "-1").ended(900)
    assert "memory_every=-1; it is a number of batches, or 0" in text
