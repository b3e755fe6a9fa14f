"""Headrace for TensorFlow. `import headrace` alone does not import it.

    import headrace.tensorflow

    clicks = headrace.tensorflow.dataset("clicks", 1024)   # a tf.data.Dataset
    records = headrace.tensorflow.input_of(clicks)
    for b in clicks:                                       # a dict of tensors
        train(b["dense"], b["label"])
        records.step()                                     # these records are in the model

TensorFlow 2.15 (with Estimator) and the newest one (with Keras 3) are tested.

File map:

    _elements.py    a batch as the tensors of one element, and the element_spec
    _input.py       dataset(), Input: the stream below a tf.data.Dataset
    _chain.py       which transformations of tf.data keep one element one batch
    _cluster.py     rank and world size from TF_CONFIG
    _prefix.py      checkpoints that TensorFlow writes under a prefix, with their manifests
    _variables.py   the variables of a session as a state
    _estimator.py   Estimator: local, and with parameter servers
    _roles.py       what each task of a cluster does: train, serve, evaluate
    _silent.py      saves while an input is silent
    _waiting.py     a worker waits for the model, or for the job's end
    keras.py        a callback for Model.fit
"""

from __future__ import annotations

from typing import Any

from ._chain import input_of
from ._cluster import Task, task
from ._input import Input, dataset


def estimator(estimator: Any, checkpointer: Any = None, *, memory_every: int = 0) -> Any:
    """Returns a `Trainable`: an Estimator whose checkpoints know their records (`_estimator.py`)."""
    from ._estimator import Trainable

    return Trainable(estimator, checkpointer, memory_every=memory_every)


__all__ = ["Input", "Task", "dataset", "estimator", "input_of", "task"]
