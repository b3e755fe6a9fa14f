"""Checkpoints that a framework writes: a cut, and the manifest that ties both together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING, Union

from . import _cuts, _publish
from ._bucket import Bucket
from ._cuts import Cut, ExactCut

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer

Path = Union[str, "os.PathLike[str]"]


@contextlib.contextmanager
def exact(ck: Checkpointer, step: int | None) -> Iterator[ExactCut]:
    """See Checkpointer.exact."""
    trainer = ck._trainer
    trainer.check()
    ck._finish()
    ck._raise_unseen()
    number = _cuts.check_step(trainer, step)
    deadline = time.monotonic() + ck._timeout
    mine, shared = _cuts.new_id(), trainer.model == "shared"
    exact = ExactCut()
    if shared:
        trainer.check_stepped()
        _cuts.pause(trainer, mine, min(deadline, time.monotonic() + ck._pause_timeout))
    try:
        ck._reached("paused")
        yield exact
        ck._reached("captured")
        path = "" if exact.path is None else _publish.place_of(os.path.abspath(os.fspath(exact.path)))
        asked = _cuts.ask(
            trainer, number, deadline, cut=mine, path=path, exact=shared, after=ck._look()
        )  # fmt: skip
        exact.cut = ck._frozen(asked)
        ck._covered.cut(number, ck.keep)
    except BaseException as error:
        if shared:
            _cuts.forget(trainer, mine, f"its save attempt ended: {error!r}")  # lets the others go on
        raise
    ck._reached("frozen")


def bind(
    ck: Checkpointer,
    cut_or_step: Cut | ExactCut | int,
    path: Path | None,
    files: Iterable[Path] | None,
    step: int | None,
) -> str:
    """See Checkpointer.bind."""
    if isinstance(ck._at, Bucket):
        raise ValueError(f"bind() is for checkpoints in a folder, and those of this Checkpointer lie in {ck.dir}")
    ck._trainer.check()
    ck._raise_unseen()
    deadline = time.monotonic() + ck._timeout
    if isinstance(cut_or_step, ExactCut):
        if cut_or_step.cut is None:
            raise ValueError("there is no cut yet: bind() comes after the `with ck.exact()` block has ended well")
        path = cut_or_step.path if path is None else path
        cut = cut_or_step.cut
    elif isinstance(cut_or_step, Cut):
        cut = cut_or_step
    elif cut_or_step in ck._cuts:
        cut = ck._cuts[cut_or_step]
    elif cut_or_step > ck._trainer.last_step:
        last = ck._trainer.last_step
        raise ValueError(f"step {cut_or_step}, but the last step that this rank has reported is {last}")
    else:
        cut = ck._frozen(_cuts.ask(ck._trainer, cut_or_step, deadline, after=ck._look()))
    if path is None:
        raise ValueError("bind() needs the path of the checkpoint: a file, a folder, or the prefix of files=")
    if step is not None and step != cut.step and ck._trainer.model != "shared":
        raise ValueError(f"step={step}, but the cut is that of step {cut.step}: only in a shared model they differ")
    where = os.path.abspath(os.fspath(path))
    if files is None:
        manifest, listed = _publish.describe_all(where)
    else:
        manifest, listed = _publish.describe_files(where, [os.path.abspath(os.fspath(f)) for f in files])
    fields = _publish.manifest_of(cut.body, cut.step if step is None else index(step), listed)
    temp = _publish.prepare(manifest, cut.id, fields)
    ck._reached("manifest")
    _publish.publish(temp, manifest)
    ck._reached("renamed")
    _cuts.bind(ck._trainer, cut.id, manifest, deadline)
    ck._covered.bound(cut.step)
    ck._reached("bound")
    return manifest
