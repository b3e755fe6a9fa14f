"""A batch as one element of a tf.data.Dataset.

tf.data takes numpy arrays from Python. A column with any number of values per row goes there
as the values and their offsets, a column of strings as one long string and its offsets. A
map, which runs in C++, makes a RaggedTensor or a tensor of strings from these. So no row
costs time in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from headrace._batch import Batch
from headrace._columns import Bytes, Column, Ragged

#: The element of a numbered dataset that holds the batch's number.
NUMBER = "batch_number"

_TYPES = {
    "bool": tf.bool,
    "int32": tf.int32,
    "int64": tf.int64,
    "float32": tf.float32,
    "float64": tf.float64,
    "string": tf.string,
    "bytes": tf.string,
}


def element_spec(columns: Sequence[Column], numbered: bool) -> dict[str, Any]:
    """Describes an element of the dataset: column -> TensorSpec or RaggedTensorSpec. The
    mask of a column is an entry of its own, NAME.mask. The number of rows is None, because
    the last batch may be shorter."""
    spec: dict[str, Any] = {}
    for column in columns:
        dtype = _TYPES[column.dtype]
        if column.ragged:
            spec[column.name] = tf.RaggedTensorSpec([None, None], dtype, row_splits_dtype=tf.int64)
        else:
            spec[column.name] = tf.TensorSpec([None, *column.shape], dtype)
        if column.mask:
            spec[f"{column.name}.mask"] = tf.TensorSpec([None, *column.shape], tf.bool)
    if numbered:
        if NUMBER in spec:
            raise ValueError(f"numbered=True adds {NUMBER!r}, and the dataset has such a column: rename it in its spec")
        spec[NUMBER] = tf.TensorSpec([], tf.int64)
    return spec


def flat_spec(columns: Sequence[Column]) -> tuple[Any, ...]:
    """The specs of the arrays that flat() returns."""
    out: list[Any] = []
    for column in columns:
        out += _flat_spec_of(column)
        if column.mask:
            out.append(tf.TensorSpec([None, *column.shape], tf.bool))
    return (*out, tf.TensorSpec([], tf.int64))


def _flat_spec_of(column: Column) -> list[Any]:
    offsets = [tf.TensorSpec([None], tf.int64)]
    if column.binary:
        return [tf.TensorSpec([], tf.string), *offsets, *(offsets if column.ragged else [])]
    if column.ragged:
        return [tf.TensorSpec([None], _TYPES[column.dtype]), *offsets]
    return [tf.TensorSpec([None, *column.shape], _TYPES[column.dtype])]


def flat(batch: Batch, columns: Sequence[Column]) -> tuple[Any, ...]:
    """The arrays of a batch, in the order of flat_spec()."""
    out: list[Any] = []
    for column in columns:
        value: Any = batch[column.name]
        offsets = None
        if isinstance(value, Ragged):
            value, offsets = value.values, value.offsets
        if isinstance(value, Bytes):
            out += [np.array(value.data.tobytes(), dtype=object), value.offsets]
        else:
            out.append(value)
        if offsets is not None:
            out.append(offsets)
        if column.mask:
            out.append(batch.mask(column.name))
    out.append(np.int64(batch.number))
    return tuple(out)


def assemble(columns: Sequence[Column], numbered: bool, parts: Sequence[Any]) -> Mapping[str, Any]:
    """Makes the element that element_spec() describes from the tensors of flat()."""
    at = iter(parts)
    element: dict[str, Any] = {}
    for column in columns:
        value = next(at)
        if column.binary:
            ends = next(at)
            value = tf.strings.substr(value, ends[:-1], ends[1:] - ends[:-1])
        if column.ragged:
            value = tf.RaggedTensor.from_row_splits(value, next(at), validate=False)
        element[column.name] = value
        if column.mask:
            element[f"{column.name}.mask"] = next(at)
    if numbered:
        element[NUMBER] = next(at)
    return element
