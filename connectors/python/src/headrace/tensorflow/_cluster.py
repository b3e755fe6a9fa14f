"""Rank and world size of a task that TF_CONFIG describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace import _trainer
from headrace._trainer import Trainer, init

CHIEFS = ("chief", "master")


@dataclass(frozen=True)
class Task:
    """One task of a TensorFlow cluster."""

    type: str  # "chief", "worker", "ps", "evaluator"
    index: int
    rank: int | None  # the chief is 0, worker i is i + 1, or i without a chief; None: it does not train
    world_size: int  # tasks that train
    servers: int  # parameter servers

    @property
    def trains(self) -> bool:
        return self.rank is not None


def task(env: Mapping[str, str] | None = None) -> Task:
    """This process's task, from TF_CONFIG; without one, the only task of a job.

    Raises ValueError that names what is wrong with TF_CONFIG.
    """
    text = (os.environ if env is None else env).get("TF_CONFIG", "")
    if not text:
        return Task("chief", 0, 0, 1, 0)
    try:
        config = json.loads(text)
        cluster, mine = config.get("cluster") or {}, config.get("task") or {}
        sizes = {str(kind): len(hosts) for kind, hosts in cluster.items()}
        kind, index = str(mine.get("type", "chief")), int(mine.get("index", 0))
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"TF_CONFIG cannot be read: {error}: {text[:200]}") from None
    if not sizes:
        return Task(kind, index, 0, 1, 0)
    chiefs = sum(sizes.get(chief, 0) for chief in CHIEFS)
    if chiefs > 1:
        raise ValueError(f"TF_CONFIG: cluster has {chiefs} chiefs; it may have one at most")
    world = chiefs + sizes.get("worker", 0)
    rank = 0 if kind in CHIEFS else chiefs + index if kind == "worker" else None
    if kind in sizes and not 0 <= index < sizes[kind]:
        raise ValueError(f"TF_CONFIG: task.index is {index}, and the cluster has {sizes[kind]} of type {kind!r}")
    if kind in (*CHIEFS, "worker", "ps") and kind not in sizes:
        raise ValueError(f"TF_CONFIG: task.type is {kind!r}, and the cluster has none: {', '.join(sizes)}")
    return Task(kind, index, rank, world, sizes.get("ps", 0))


def init_by_task() -> Trainer:
    """Calls init() with the rank that TF_CONFIG says, unless HEADRACE_RANK or RANK says one.

    Raises ValueError in a task that does not train.
    """
    if _trainer._current is not None or not os.environ.get("TF_CONFIG"):
        return init()
    mine = task()
    if not mine.trains:
        raise ValueError(
            f"this is a task of type {mine.type!r}, which trains nothing: read its data with tf.data alone. Through "
            "Headrace it would take records away from the training"
        )
    named: dict[str, Any] = {}
    if not any(os.environ.get(name) for name in ("HEADRACE_RANK", "RANK")):
        named = {"rank": mine.rank, "world_size": mine.world_size}
    return init(**named)
