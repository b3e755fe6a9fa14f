"""A callback for Lightning: what was trained is stepped, and checkpoints carry their records.

    import lightning
    from headrace.torch import Loader
    from headrace.torch.lightning import HeadraceCallback

    loader = Loader("clicks", 1024)
    trainer = lightning.Trainer(callbacks=[HeadraceCallback(loader), ModelCheckpoint(...)])
    trainer.fit(model, DataLoader(loader, batch_size=None), ckpt_path=...)

With checkpoints in memory, after each step, and on storage after each 1000th:

    callback = HeadraceCallback(loader, "checkpoints", memory_every=1, storage_every=1000)
    trainer = lightning.Trainer(callbacks=[callback])
    trainer.fit(model, DataLoader(loader, batch_size=None), ckpt_path=callback.restore())
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import torch
from headrace._covered import carried
from headrace._stream import Stream

from ._flash import Flash
from ._loader import Loader, refuse_pad

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

log = logging.getLogger("headrace")

_KEY = "headrace"
_BACK = "headrace_restored"  # the step, of a checkpoint whose records restore() went back to


class HeadraceCallback(Callback):
    """Says after each optimizer step which batches are in the model, and puts the records
    of the model into Lightning's checkpoints.

    Lightning fetches a batch ahead, to know which one is the last. So the callback counts
    the batches that were trained, and steps that many: a batch that was fetched and not
    trained comes again. With gradient accumulation the batches of one optimizer step are
    stepped together. The step is `trainer.global_step`.

    A checkpoint holds the whole cut of the job. All ranks ask for it, so the checkpoint is
    saved by all, as Lightning's strategies do. Resume with ``fit(ckpt_path=...)``.

    dir, memory_every, storage_every: after every so many steps, what Lightning needs to go
    on is copied into memory (docs/FLASH.md), and every so many steps it goes to the folder
    `dir` too; 0: only when training ends. Then resume with
    ``fit(ckpt_path=callback.restore())``. It takes the newest that all ranks hold, from
    memory or from storage. Hyperparameters are not in it: the program has them. State of
    callbacks and modules has to be plain: tensors, arrays, numbers, text, and containers of
    them. Models that are spread over ranks (FSDP) have their own way: docs/torch.md.
    """

    def __init__(
        self,
        stream: Stream | Loader,
        dir: str | os.PathLike[str] | None = None,
        *,
        memory_every: int = 0,
        storage_every: int = 0,
        loss_applies_weight: bool = False,
    ) -> None:
        refuse_pad(stream, loss_applies_weight)
        self._given = stream
        self._trained = 0  # batches since the last step
        self._last = 0
        self._dumps = False  # the state is taken for memory, and the records are bound to it there
        self._flash = Flash(self._stream, dir, memory_every, storage_every)
        if not memory_every:
            carried(self._stream._trainer, "call trainer.save_checkpoint(PATH) after fit()")

    def restore(self) -> str | None:
        """Goes back to the newest checkpoint of `dir`, in memory or on storage: a path for
        ``fit(ckpt_path=...)``, or None. Every rank calls it, before fit()."""
        return self._flash.restore(_write)

    @property
    def restored_from(self) -> str:
        """Where restore() found the checkpoint: "memory", "peer" (the memory of another node) or
        "storage"; "": there was none."""
        return self._flash.source

    @property
    def _stream(self) -> Stream:
        return self._given.stream if isinstance(self._given, Loader) else self._given

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Refuses a Trainer whose steps this process has reported already: they could not be reported again."""
        last = self._stream._trainer.last_step
        if trainer.global_step < last:
            raise ValueError(
                f"this Trainer begins at step {trainer.global_step}, and step {last} is in the model of this process "
                "already. After callback.restore() or a checkpoint, give its path to fit(ckpt_path=...). To go on "
                "after fit(), call fit() of the same Trainer again; a new Trainer needs a new process"
            )

    def on_train_batch_end(self, trainer: Any, *args: Any, **more: Any) -> None:
        """Steps what the optimizer has taken in."""
        self._trained += 1
        step = trainer.global_step
        if step > max(self._last, self._stream._trainer.last_step):
            self._stream.step(step, batches=self._trained)
            self._trained, self._last = 0, step
            self._flash.stepped(step, lambda: self._dump(trainer))

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """With memory_every, saves the end on storage."""
        if self._last:
            self._flash.ended(self._last, lambda: self._dump(trainer))

    def _dump(self, trainer: Any) -> dict[str, Any]:
        """What Lightning would write to a file, without what the program has anyway."""
        self._dumps = True
        try:
            checkpoint: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        finally:
            self._dumps = False
        checkpoint[_BACK] = trainer.global_step
        return {
            k: v for k, v in checkpoint.items() if not k.startswith(("hparams_", "hyper_parameters", "datamodule_"))
        }

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Waits until all ranks have said the step, and stores the cut."""
        if not trainer.global_step or self._dumps:
            return
        if trainer.global_step != self._last:  # an error has ended the batch, for example
            log.warning(
                "this checkpoint of Lightning gets no records: step %d is in its model, and the last whole batch was "
                "that of step %d. fit() does not go on from it",
                trainer.global_step,
                self._last,
            )
            return
        checkpoint[_KEY] = self._stream.state_dict()

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Goes back to the records of the checkpoint's model."""
        if _BACK in checkpoint:
            self._last, self._trained = int(checkpoint[_BACK]), 0
            return
        if _KEY not in checkpoint:
            raise ValueError(
                "this checkpoint of Lightning has no records of Headrace: it was saved without HeadraceCallback, or "
                'before the first step. Start over without ckpt_path and with headrace.init(resume="start")'
            )
        self._stream.load_state_dict(checkpoint[_KEY])
        self._last, self._trained = int(checkpoint[_KEY]["step"]), 0


def _write(state: Any, folder: str) -> str:
    path = os.path.join(folder, "restored.ckpt")
    torch.save(state, path)
    return path
