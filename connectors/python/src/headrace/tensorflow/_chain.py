"""Which transformations of tf.data keep the batches countable.

One element in must be one element out, in the same order: then the k-th element that was
trained is the k-th batch of the stream, whatever was pulled ahead. After any other
transformation nobody could say which records are in the model, so input_of() refuses it by
its name.
"""

from __future__ import annotations

import warnings
from typing import Any

#: Classes of tf.data, without "_" and "Dataset".
_COUNTABLE = {"Map", "ParallelMap", "Prefetch", "Options", "Take", "TakeWhile", "Restructured", "AssertCardinality"}
_SAY = {
    "Shuffle": "shuffle in the dataset's spec (`shuffle:`), which is a property of the data and costs no memory here",
    "Batch": "ask dataset() for as many rows as you train at once",
    "ParallelBatch": "ask dataset() for as many rows as you train at once",
    "Unbatch": "ask dataset() for as many rows as you train at once",
    "Repeat": "say `passes:` in the dataset's spec",
    "Filter": "filter in the dataset's spec, or give rows the weight 0",
    "Cache": "leave it out: the agent reads ahead in a process of its own",
}


def input_of(dataset: Any) -> Any:
    """The `Input` below a tf.data.Dataset.

    Raises ValueError if there is none, and if a transformation on the way does not give
    one element for each, in order: shuffle, batch, unbatch, repeat, filter and others.
    """
    at = dataset
    while True:
        found = getattr(at, "_headrace_input", None)
        if found is not None:
            if _deterministic(dataset) is False:
                raise ValueError(
                    "options.deterministic=False: elements may come in another order than their records. Leave it out"
                )
            return found
        below = at._inputs()
        name = type(at).__name__.strip("_").removesuffix("Dataset")
        if len(below) != 1 or (name not in _COUNTABLE and name != "FlatMap"):
            inside = _below(at)
            if inside is None:
                raise ValueError(
                    "this dataset does not come from headrace.tensorflow.dataset(), so its batches cannot be stepped"
                )
            raise _uncountable(name)
        if name == "ParallelMap" and getattr(at, "_deterministic", "") == "false":
            raise ValueError(
                "map(deterministic=False) after headrace.tensorflow.dataset(): elements may come in another order than "
                "their records. Leave it out"
            )
        if name == "FlatMap" and _below(at) is not None:
            raise _uncountable(name)
        at = below[0]


def pulls_ahead(dataset: Any) -> str:
    """Names the transformation that pulls batches ahead of the model; empty: there is none."""
    at = dataset
    while getattr(at, "_headrace_input", None) is None:
        name = type(at).__name__.strip("_").removesuffix("Dataset")
        if name in ("Prefetch", "ParallelMap"):
            return "prefetch()" if name == "Prefetch" else "map(num_parallel_calls=)"
        at = at._inputs()[0]
    return ""


def ends_early(dataset: Any) -> bool:
    """Whether a take() may end the dataset although more batches come."""
    at = dataset
    while getattr(at, "_headrace_input", None) is None:
        if type(at).__name__.strip("_").removesuffix("Dataset") == "Take":
            return True
        at = at._inputs()[0]
    return False


def _deterministic(dataset: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a graph TensorFlow warns that options may be out of date
        return dataset.options().deterministic


def _below(at: Any) -> Any:
    """The Input below, through whatever transformations; None: there is none."""
    if (found := getattr(at, "_headrace_input", None)) is not None:
        return found
    return next((found for x in at._inputs() if (found := _below(x)) is not None), None)


def _uncountable(name: str) -> ValueError:
    method = "".join("_" + c.lower() if c.isupper() else c for c in name).strip("_")
    instead = _SAY.get(name, "do it before the records come to Headrace, or in the model")
    return ValueError(
        f"{method}() after headrace.tensorflow.dataset(): one element of it is not one batch, so nobody could say "
        f"which records are in the model. Instead {instead}"
    )
