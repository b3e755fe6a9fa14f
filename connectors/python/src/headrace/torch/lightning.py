"""A callback for Lightning: what was trained is stepped, and checkpoints carry their records.

    import lightning
    from headrace.torch import Loader
    from headrace.torch.lightning import HeadraceCallback

    loader = Loader("clicks", 1024)
    trainer = lightning.Trainer(callbacks=[HeadraceCallback(loader), ModelCheckpoint(...)])
    trainer.fit(model, DataLoader(loader, batch_size=None), ckpt_path=...)
"""

from __future__ import annotations

import sys
from typing import Any

from headrace._stream import Stream

from ._loader import Loader, refuse_pad

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback

_KEY = "headrace"


class HeadraceCallback(Callback):
    """Says after each optimizer step which batches are in the model, and puts the records
    of the model into Lightning's checkpoints.

    Lightning fetches a batch ahead, to know which one is the last. So the callback counts
    the batches that were trained, and steps that many: a batch that was fetched and not
    trained comes again. With gradient accumulation the batches of one optimizer step are
    stepped together. The step is `trainer.global_step`.

    A checkpoint holds the whole cut of the job. All ranks ask for it, so the checkpoint is
    saved by all, as Lightning's strategies do. Resume with ``fit(ckpt_path=...)``.
    """

    def __init__(self, stream: Stream | Loader, *, loss_applies_weight: bool = False) -> None:
        refuse_pad(stream, loss_applies_weight)
        self._given = stream
        self._trained = 0  # batches behind the last step
        self._last = 0

    @property
    def _stream(self) -> Stream:
        return self._given.stream if isinstance(self._given, Loader) else self._given

    def on_train_batch_end(self, trainer: Any, *args: Any, **more: Any) -> None:
        """Steps what the optimizer has taken in."""
        self._trained += 1
        step = trainer.global_step
        if step > max(self._last, self._stream._trainer.last_step):
            self._stream.step(step, batches=self._trained)
            self._trained, self._last = 0, step

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Waits until all ranks have said the step, and stores the cut."""
        if trainer.global_step:
            checkpoint[_KEY] = self._stream.state_dict()

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        """Goes back to the records of the checkpoint's model."""
        if _KEY not in checkpoint:
            raise ValueError(
                "this checkpoint of Lightning has no records of Headrace: it was saved without HeadraceCallback, or "
                "before the first step. Start over without ckpt_path and with headrace.init(resume=\"start\")"
            )
        self._stream.load_state_dict(checkpoint[_KEY])
        self._last, self._trained = int(checkpoint[_KEY]["step"]), 0
