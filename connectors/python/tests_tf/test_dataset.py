"""dataset(): a stream of a real agent as a tf.data.Dataset."""

from __future__ import annotations

from typing import Any

import headrace
import headrace.tensorflow
import numpy as np
import pytest
import tensorflow as tf

N = 1000
MORE = """
    - {name: seen, path: "5", dtype: int64, split: ",", hash: {buckets: 50, salt: s}}
    - {name: words, path: "5", dtype: string, split: ","}
    - {name: score, path: "2", dtype: float32, missing: mask}
    - {name: pair, paths: ["1", "2"], dtype: float32, missing: mask}
"""


@pytest.fixture
def rows(job: Any) -> Any:
    job.write(N)
    job.up("--model", "replicated")
    job.apply()
    return job


def trained(dataset: tf.data.Dataset, ids: list[int], stop: int = 1 << 30) -> None:
    """A loop that steps each batch, up to `stop` of them."""
    records = headrace.tensorflow.input_of(dataset)
    for n, b in enumerate(dataset, 1):
        ids += b["id"].numpy().tolist()
        records.step()
        if n == stop:
            return


def test_each_column_is_what_the_spec_says(rows: Any) -> None:
    def line(i: int) -> str:
        return f"{i}\t{i % 7}\t{'' if i % 5 == 0 else i % 11}\t0.5\tw{i % 97}\t{','.join(['z'] * (i % 3))}\n"

    (rows.data / "day_0.tsv").write_text("".join(map(line, range(100))))
    for name in ("day_1.tsv", "day_2.tsv"):
        (rows.data / name).unlink()
    spec = rows.folder / "odd.yaml"
    spec.write_text(rows.spec("odd").rstrip() + MORE)
    rows.headrace("dataset", "apply", "-f", str(spec))
    dataset = headrace.tensorflow.dataset("odd", 32, numbered=True)
    assert dataset.element_spec == {
        "id": tf.TensorSpec([None], tf.int64),
        "dense": tf.TensorSpec([None, 3], tf.float32),
        "cat": tf.TensorSpec([None, 2], tf.int64),
        "word": tf.TensorSpec([None], tf.string),
        "seen": tf.RaggedTensorSpec([None, None], tf.int64, row_splits_dtype=tf.int64),
        "words": tf.RaggedTensorSpec([None, None], tf.string, row_splits_dtype=tf.int64),
        "score": tf.TensorSpec([None], tf.float32),
        "score.mask": tf.TensorSpec([None], tf.bool),
        "pair": tf.TensorSpec([None, 2], tf.float32),
        "pair.mask": tf.TensorSpec([None, 2], tf.bool),
        "batch_number": tf.TensorSpec([], tf.int64),
    }
    records, at = headrace.tensorflow.input_of(dataset), 0
    for number, b in enumerate(dataset, 1):
        for name, spec_of in dataset.element_spec.items():
            assert spec_of.is_compatible_with(b[name]), name
        assert int(b["batch_number"]) == number
        masks = zip(b["score.mask"].numpy(), b["pair.mask"].numpy())
        for i, word, seen, words, (mask, pair) in zip(b["id"].numpy(), b["word"].numpy(), b["seen"], b["words"], masks):
            assert i == at
            assert word == f"w{i % 97}".encode()
            assert len(seen) == i % 3
            assert words.numpy().tolist() == [b"z"] * (i % 3)
            assert mask == (i % 5 != 0)
            assert pair.tolist() == [True, i % 5 != 0]
            at += 1
        records.step(through=int(b["batch_number"]))
    assert at == 100


def test_an_input_shows_what_it_is(rows: Any) -> None:
    records = headrace.tensorflow.input_of(headrace.tensorflow.dataset("rows", 100))
    assert repr(records) == "Input('rows', 100 rows a batch, not opened yet)"
    assert repr(records.stream) in repr(records)


def test_nothing_is_pulled_ahead_unless_the_user_says_so(rows: Any) -> None:
    dataset = headrace.tensorflow.dataset("rows", 10).map(lambda b: (b["dense"], b["id"]))
    records, ids = headrace.tensorflow.input_of(dataset), []
    for _, b in dataset:
        assert records.unstepped == 1
        ids += b.numpy().tolist()
        records.step()
    assert sorted(ids) == list(range(N))


def test_a_strategy_for_several_workers_drops_no_batch(rows: Any) -> None:
    from tensorflow.python.distribute.input_ops import auto_shard_dataset  # what MultiWorkerMirroredStrategy calls

    dataset = headrace.tensorflow.dataset("rows", 10)
    ids: list[int] = []
    records = headrace.tensorflow.input_of(dataset)
    for b in auto_shard_dataset(dataset.map(dict), 2, 0):
        ids += b["id"].numpy().tolist()
        records.step()
    assert sorted(ids) == list(range(N))


@pytest.mark.parametrize("ahead", [lambda d: d.prefetch(8), lambda d: d.map(dict, num_parallel_calls=4).prefetch(2)])
def test_what_is_pulled_ahead_is_stepped_when_it_was_trained(rows: Any, ahead: Any) -> None:
    dataset = ahead(headrace.tensorflow.dataset("rows", 10, numbered=True))
    records, ids, most = headrace.tensorflow.input_of(dataset), [], 0
    for b in dataset:
        ids += b["id"].numpy().tolist()
        most = max(most, records.unstepped)
        records.step(through=int(b["batch_number"]))
    assert sorted(ids) == list(range(N))
    assert most > 1
    with pytest.raises(ValueError, match="through=101: no batch is unstepped"):
        records.step(through=101)


def test_a_second_loop_goes_on_after_what_was_trained(rows: Any) -> None:
    ids: list[int] = []
    for stop in (7, 11, 1 << 30):  # what was pulled ahead at the end of one comes again in the next
        trained(headrace.tensorflow.dataset("rows", 10).prefetch(4), ids, stop)
    assert sorted(ids) == list(range(N))
    assert len(ids) == N


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.shuffle(4), r"shuffle\(\) .*`shuffle:`"),
        (lambda d: d.unbatch(), r"unbatch\(\) "),
        (lambda d: d.unbatch().batch(7), r"batch\(\) "),
        (lambda d: d.repeat(), r"repeat\(\) .*`passes:`"),
        (lambda d: d.filter(lambda b: True), r"filter\(\) "),
        (lambda d: d.flat_map(tf.data.Dataset.from_tensors), r"flat_map\(\) "),
        (lambda d: d.map(dict, num_parallel_calls=2, deterministic=False), r"map\(deterministic=False\)"),
        (lambda d: d.enumerate(), r"zip\(\) "),
    ],
)
def test_what_loses_count_of_the_batches_is_refused_by_name(rows: Any, change: Any, why: str) -> None:
    dataset = change(headrace.tensorflow.dataset("rows", 10))
    with pytest.raises(ValueError, match=why):
        headrace.tensorflow.input_of(dataset)


def test_another_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="does not come from"):
        headrace.tensorflow.input_of(tf.data.Dataset.range(3).map(lambda x: x))


def test_tensors_and_variables_are_saved_in_a_state(rows: Any) -> None:
    state = {"t": tf.constant([1.5, 2.5]), "v": tf.Variable([[1, 2]], dtype=tf.int64), "k": [np.float32(3)]}
    with headrace.dataset("rows").batches(10) as stream, headrace.Checkpointer(rows.folder / "ck", stream) as ck:
        next(stream)
        ck.save(stream.step(), state).wait()
    headrace.shutdown()
    headrace.init(resume="bound")
    with headrace.dataset("rows").batches(10) as stream, headrace.Checkpointer(rows.folder / "ck", stream) as ck:
        restored = ck.restore()
        assert restored is not None
        assert restored.state["t"].tolist() == [1.5, 2.5]
        assert restored.state["v"].tolist() == [[1, 2]]
        assert restored.state["v"].dtype == np.int64


CLUSTER = '{"cluster": {"ps": ["a"], "chief": ["b"], "worker": ["c", "d"]}, "task": {"type": "%s", "index": %d}}'


@pytest.mark.parametrize(
    ("config", "rank", "world", "servers"),
    [
        (CLUSTER % ("worker", 1), 2, 3, 1),
        (CLUSTER % ("chief", 0), 0, 3, 1),
        (CLUSTER % ("ps", 0), None, 3, 1),
        (CLUSTER % ("evaluator", 0), None, 3, 1),
        ("", 0, 1, 0),
    ],
)
def test_rank_and_world_size_come_from_tf_config(config: str, rank: int | None, world: int, servers: int) -> None:
    task = headrace.tensorflow.task({"TF_CONFIG": config})
    assert (task.rank, task.world_size, task.servers) == (rank, world, servers)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("{", "cannot be read"),
        ('{"cluster": {"chief": ["b"]}, "task": {"type": "worker", "index": 0}}', "task.type is 'worker'"),
        ('{"cluster": {"worker": ["b"]}, "task": {"type": "worker", "index": 3}}', "task.index is 3"),
    ],
)
def test_a_tf_config_that_is_wrong_is_named(config: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        headrace.tensorflow.task({"TF_CONFIG": config})
