"""Ray Data into a dataset whose source is `landing` (docs/LANDING.md, From Ray).

    from headrace.ray import Datasink

    ray.data.read_parquet("s3://...").write_datasink(Datasink("clicks", transaction="backfill-1"))

All rows become visible together, once, when the last task has ended. Tasks that fail, are
retried or run twice do no harm.

In a worker of Ray Train, init() attaches to the agent of its node (docs/torch.md, Ray Train):

    def worker(config):
        headrace.ray.init()
        loader = headrace.torch.Loader("clicks", 1024)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Literal

import ray.data

from . import _trainer
from ._errors import HeadraceError
from ._master import Target
from ._push import Pushed, Pusher
from ._upload import Client

__all__ = ["Datasink", "init"]

_PIECE = 10_000  # rows that are Python objects at a time


class _Nothing:
    """The driver puts nothing, so it needs no credentials."""

    def put_object(self, **_: Any) -> Any:
        raise NotImplementedError


def init(
    job: str | None = None,
    *,
    agent: str | None = None,
    resume: Literal["bound", "acked", "start"] | None = None,
) -> _trainer.Trainer:
    """Attaches a worker of Ray Train to its node's agent, as headrace.init() does, with the
    rank and the world size of ray.train.get_context().

    job, agent, resume: as of headrace.init(). Call it in the worker, before the first stream.
    Raises HeadraceError outside a worker of Ray Train, and what headrace.init() raises.
    """
    import ray.train

    try:
        context = ray.train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except Exception as error:  # which one depends on Ray's version
        raise HeadraceError(
            "headrace.ray.init() is for workers of Ray Train, and this process is none: call it in the function that "
            f"the trainer is given, or call headrace.init(rank=..., world_size=...): {error}"
        ) from error
    return _trainer.init(job, agent=agent, rank=rank, world_size=world_size, resume=resume)


class Datasink(ray.data.Datasink):
    """Writes a Ray dataset in one transaction.

    dataset:      the name of a dataset with `landing:` in its spec.
    transaction:  its id, unique for good. A write with an id that is visible adds nothing, so
                  give one to a job that may run again. None: a new one for each Datasink, which
                  then writes one dataset of Ray and refuses a second one.
    value:        the column whose bytes or text is the record. None: a row is sent as JSON.
    key:          the column with the key of a record. None: what the spec says.
    master, token, token_file, job: as of headrace.Pusher. They are settled on the driver.
    patience:     seconds that a task waits for a master that is away or full. None: no end.
    upload:       tasks put their chunks into the dataset's bucket themselves, with the
                  credentials of their workers; only the commit goes to the master. True: as of
                  headrace.Pusher; or a function that makes a client in each task, such as
                  lambda: boto3.client("s3").
    """

    def __init__(
        self,
        dataset: str,
        *,
        transaction: str | None = None,
        value: str | None = None,
        key: str | None = None,
        job: str | None = None,
        master: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        patience: float | None = None,
        upload: bool | Callable[[], Client] = False,
    ) -> None:
        self.dataset = dataset
        self.transaction = transaction if transaction is not None else f"ray-{uuid.uuid4().hex}"
        self._drawn = transaction is None
        self._value, self._key, self._patience, self._upload = value, key, patience, upload
        self._target = Target.find(job, master, token, token_file)
        self.done: Pushed | None = None  #: on the driver, when the write has ended

    def get_name(self) -> str:
        return "Headrace"

    def _open(self, upload: bool | Client = False) -> Pusher:
        return Pusher._to(self.dataset, self._target, self._patience, upload)

    def _staging(self) -> Pusher:
        return self._open(self._upload if isinstance(self._upload, bool) else self._upload())

    def on_write_start(self, *_: Any, **__: Any) -> None:
        """On the driver: an error of the dataset or the token comes before any task, and so does
        a master that has no bucket to upload to. A second write would be taken for the first
        one, and its rows would be lost."""
        if self._drawn and self.done is not None:
            raise ValueError(
                f"this Datasink has written its transaction {self.transaction!r}, and would add none of these rows: "
                "make a new Datasink for each write"
            )
        with self._open(_Nothing() if self._upload is not False else False):
            pass

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[str]:
        """One task: stages its rows, and gives the locators of their chunks. Chunks of an
        attempt whose answer is lost are named by nobody, and are deleted."""
        with self._staging() as pusher:
            if pusher.landed(self.transaction):
                return []
            begun = pusher.begin(self.transaction)
            for block in blocks:
                table = ray.data.block.BlockAccessor.for_block(block).to_arrow()
                for column in (self._value, self._key):
                    if column is not None and column not in table.column_names:
                        raise ValueError(f"there is no column {column!r} among {table.column_names}")
                for piece in table.to_batches(max_chunksize=_PIECE):
                    for row in piece.to_pylist():
                        value = row if self._value is None else row[self._value]
                        key = None if self._key is None else row[self._key]
                        if not isinstance(key, (bytes, str, type(None))):
                            key = str(key)
                        begun.push(value, key=key)
            return begun.stage()

    def on_write_complete(self, write_result: Any) -> None:
        """On the driver, when all tasks have ended: the one commit."""
        with self._open() as pusher:
            locators = [locator for part in write_result.write_returns for locator in part]
            self.done = pusher.commit(self.transaction, locators)
