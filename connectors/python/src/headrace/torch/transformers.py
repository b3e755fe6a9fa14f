"""A callback for the Trainer of Hugging Face: what was trained is stepped, and its
checkpoints are bound to their records.

    from transformers import TrainingArguments
    from headrace.torch import Loader
    from headrace.torch.transformers import HeadraceCallback, HeadraceTrainer

    loader = Loader("clicks", 1024)
    callback = HeadraceCallback(loader, "out")
    arguments = TrainingArguments("out", max_steps=..., ignore_data_skip=True)
    trainer = HeadraceTrainer(model, arguments, train_dataset=loader, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.restore())
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed
import torch.utils.data
from headrace._checkpoint import Checkpointer
from headrace._stream import Stream
from transformers import Trainer, TrainerCallback

from ._loader import Loader, refuse_pad


class HeadraceTrainer(Trainer):
    """A Trainer that takes the batches of a Loader as they are.

    The Trainer of Hugging Face would cut the batches again, and with several processes
    have rank 0 read for all of them. `per_device_train_batch_size` has no effect here.
    """

    def get_train_dataloader(self) -> Any:
        """The Loader as a DataLoader of whole batches."""
        if isinstance(self.train_dataset, Loader):
            return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)
        return super().get_train_dataloader()


class HeadraceCallback(TrainerCallback):
    """Says after each optimizer step which batches are in the model, and binds each
    checkpoint that the Trainer writes below `dir` to the records that are in it.

    The Trainer fetches all batches of an optimizer step before it trains the first one.
    So the callback counts the batches that were trained, and steps that many. The step is
    `state.global_step`.

    restore() before train(): it gives the newest checkpoint that is whole, with its
    records, for ``train(resume_from_checkpoint=...)``. A checkpoint that was written and
    not bound, because the process was killed between, does not count.
    """

    def __init__(
        self, stream: Stream | Loader, dir: str | os.PathLike[str], *, loss_applies_weight: bool = False
    ) -> None:
        refuse_pad(stream, loss_applies_weight)
        self._stream = stream.stream if isinstance(stream, Loader) else stream
        self._checkpoints = Checkpointer(dir, self._stream)
        self._trained = 0

    def restore(self) -> str | None:
        """Goes back to the newest checkpoint: its folder, or None. Every rank calls it."""
        restored = self._checkpoints.restore()
        return None if restored is None else restored.path

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Refuses settings with which the Trainer would train other records than it says."""
        self._trained = 0
        if state.global_step and not args.ignore_data_skip:
            raise ValueError(
                "set ignore_data_skip=True in TrainingArguments: the stream goes on behind the records of the "
                "checkpoint, and the Trainer would skip as many batches again"
            )
        if args.dataloader_num_workers:
            raise ValueError("set dataloader_num_workers=0: the agent reads and decodes in a process of its own")

    def on_substep_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A batch of gradient accumulation was trained."""
        self._trained += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Steps what the optimizer has taken in."""
        self._stream.step(state.global_step, batches=self._trained + 1)
        self._trained = 0

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Binds the folder that was just written. All ranks wait for the cut; the first one binds."""
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        cut = self._checkpoints.cut(state.global_step)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # other ranks may still write files of theirs
        if self._stream._trainer.rank == 0:
            self._checkpoints.bind(cut, folder)
