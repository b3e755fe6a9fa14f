"""The variables of a session of TensorFlow 1 as a state of numpy arrays, and back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from headrace._errors import CheckpointError


def check() -> None:
    """Raises ValueError if the model of this graph has more than variables, such as tables."""
    more = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVEABLE_OBJECTS)
    if more:
        raise ValueError(
            f"memory_every: {', '.join(sorted(s.name for s in more))} is part of the model and is no variable, so it "
            "cannot be saved in memory. Leave memory_every out"
        )


def ready(given: Any, variable: Any) -> Any:
    """A Scaffold's ready_for_local_init_op that also waits for a variable. given is what it would be
    otherwise: a tensor, which is empty when all is ready, an operation, or None for the default."""
    if given is None:
        given = tf.compat.v1.train.Scaffold.get_or_default(
            "ready_for_local_init_op",
            tf.compat.v1.GraphKeys.READY_FOR_LOCAL_INIT_OP,
            lambda: tf.compat.v1.report_uninitialized_variables(tf.compat.v1.global_variables()),
        )
    missing = tf.compat.v1.report_uninitialized_variables([variable])
    if isinstance(given, tf.Operation):
        with tf.control_dependencies([given]):
            return tf.identity(missing)
    if given.dtype != tf.string:
        given = tf.strings.as_string(given)
    return tf.concat([given, missing], 0)


def values(session: Any) -> dict[str, Any]:
    """The value of each variable, by name."""
    got: dict[str, Any] = session.run({v.name: v for v in tf.compat.v1.global_variables()})
    return got


def assign(session: Any, state: Any, source: str) -> None:
    """Gives each variable its value of a state. source: what to call that in an error."""
    variables = {v.name: v for v in tf.compat.v1.global_variables()}
    if not isinstance(state, dict) or set(state) != set(variables):
        other = sorted(set(variables) ^ set(state)) if isinstance(state, dict) else ["all"]
        raise CheckpointError(f"{source} is of another model: only one of the two has {', '.join(other[:5])}")
    for name, variable in variables.items():
        value = state[name]
        if not variable.shape.is_compatible_with(value.shape):
            raise CheckpointError(
                f"{source} is of another model: {name} has the shape {value.shape} there, and {variable.shape} here"
            )
    # The graph is final, so no op can be added. But each variable has an op that assigns its
    # first value, and any value can be fed for that tensor. If two variables begin with the
    # same tensor, each is assigned in a run of its own.
    left = list(variables.items())
    while left:
        feed: dict[Any, Any] = {}
        ops, later = [], []
        for name, variable in left:
            first = variable.initializer.inputs[1]
            if first.ref() in feed:
                later.append((name, variable))
            else:
                feed[first.ref()] = (first, state[name])
                ops.append(variable.initializer)
        session.run(ops, feed_dict=dict(feed.values()))
        left = later
