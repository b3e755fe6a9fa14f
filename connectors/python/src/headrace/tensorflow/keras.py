"""A callback for Keras: Model.fit whose checkpoints know their records.

    clicks = headrace.tensorflow.dataset("clicks", 1024).map(features_and_label)
    callback = headrace.tensorflow.keras.HeadraceCallback(clicks, "checkpoints", every=1000)
    model.fit(clicks, callbacks=[callback])

With memory_every=10 each tenth batch is saved in memory too, which costs a copy.

For Keras 2.15 and Keras 3 with the TensorFlow backend.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import tensorflow as tf
from headrace._checkpoint import Checkpointer
from headrace._errors import CheckpointError
from headrace._restore import Restored

from . import _chain
from ._silent import Saves

log = logging.getLogger("headrace")


class HeadraceCallback(tf.keras.callbacks.Callback):
    """Says after each batch that it is in the model, and saves checkpoints with their records.

    dataset: the tf.data.Dataset that is given to fit(). It may pull batches ahead
    (prefetch, parallel map); `input_of` lists the transformations that are refused.
    checkpoints: a folder, or a `headrace.Checkpointer`; None saves nothing. every: batches
    between two checkpoints. every_secs: seconds between two, also while no batch comes. Both
    0: only when training ends. If an input without an end is silent for a minute, `every`
    alone saves, too. memory_every: batches between two checkpoints that stay in memory
    (docs/FLASH.md); 0: none.

    When training begins, the newest checkpoint is restored: weights, the optimizer's
    variables and the records, which do not come again. The model must be built and
    compiled before, for example by an Input layer. `initial_step` is where it began, and
    `restored_from` says where the checkpoint lay.

    A loss that is NaN or infinite ends the training with FloatingPointError, which names the
    step. That batch is not stepped, and the model with it is not saved, so the next start goes
    on before it. (TerminateOnNaN only stops fit(), whose end then saves the model.)
    check_loss=False: such a batch is like any other.

    model.fit with steps_per_execution above 1 is refused: Keras does not tell a callback
    about a last execution that is shorter. So is more than one epoch without
    steps_per_epoch: say `passes:` in the dataset's spec.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        checkpoints: str | os.PathLike[str] | Checkpointer | None = None,
        *,
        every: int = 0,
        every_secs: float = 0,
        memory_every: int = 0,
        check_loss: bool = True,
    ) -> None:
        super().__init__()
        given = (
            ("every", every, "batches"),
            ("every_secs", every_secs, "seconds"),
            ("memory_every", memory_every, "batches"),
        )
        for name, n, unit in given:
            if not n >= 0:
                raise ValueError(f"{name}={n}; it is a number of {unit}, or 0")
            if n and checkpoints is None:
                raise ValueError(f"{name}={n} without checkpoints: say the folder")
        self.input = _chain.input_of(dataset)
        self.every, self.every_secs, self.memory_every = every, every_secs, memory_every
        self.check_loss = check_loss
        self._saves = Saves(every_secs)
        self._waits = bool(every or every_secs) and not _chain.ends_early(dataset)
        self._folder = None if checkpoints is None or isinstance(checkpoints, Checkpointer) else checkpoints
        self._checkpointer = checkpoints if isinstance(checkpoints, Checkpointer) else None
        #: Batches that were in the model when training began.
        self.initial_step = 0
        #: Where these were found: "memory", "peer" (of another node) or "storage"; "": nowhere.
        self.restored_from = ""
        self._step = self._saved = 0
        self._begun = False

    @property
    def step(self) -> int:
        """How many batches are in the model, those of earlier runs included."""
        return self._step

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks the settings and restores."""
        self._check()
        if not self._begun:
            self._begun = True
            self._restore()
        self._saves.begins()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Waits for the batch, and saves when it is time."""
        if self._waits:
            self._saves.await_batch(self.input, self._look)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Steps the batch, and saves when it is time."""
        if self.check_loss:
            self._refuse((logs or {}).get("loss"))
        self._step = self.input.step()
        if (self.every and self._step % self.every == 0) or self._saves.due():
            self._save()
        elif self.memory_every and self._step % self.memory_every == 0 and self._checkpointer is not None:
            self._checkpointer.save(self._step, self._variables(), storage=False)

    def on_train_end(self, logs: Any = None) -> None:
        """Gives back what was pulled ahead and not trained, and saves the end."""
        self.input.give_back()
        if self._checkpointer is not None:
            if self._step > self._saved:
                self._save()
            self._checkpointer._finish()
            self._checkpointer._raise_unseen()

    # What it does.

    def _refuse(self, loss: Any) -> None:
        """Raises FloatingPointError for a loss that is no finite number."""
        if loss is not None and not np.all(np.isfinite(loss)):
            raise FloatingPointError(
                f"the loss is {float(np.mean(loss))} after step {self._step}: that batch is not stepped, and the model "
                f"with it is not saved. Look at the records (headrace peek {self.input._dataset.name}), or lower the "
                "learning rate"
            )

    def _check(self) -> None:
        per = getattr(self.model, "steps_per_execution", None) or getattr(self.model, "_steps_per_execution", None)
        per = 1 if per is None else int(per.numpy() if hasattr(per, "numpy") else per)
        tuned = getattr(self.model, "autotune_steps_per_execution", False)  # Keras 2.15: it begins with 1
        if per > 1 or tuned:
            said = "'auto'" if tuned else per
            raise ValueError(
                f"steps_per_execution={said}: Keras does not tell a callback how many batches the last execution had, "
                "so nobody could say which records are in the model. Use compile(steps_per_execution=1)"
            )
        params = self.params or {}
        if int(params.get("epochs") or 1) > 1 and params.get("steps") is None:
            raise ValueError(
                f"epochs={params['epochs']} without steps_per_epoch: the records end with the first epoch. Say "
                "`passes:` in the dataset's spec and epochs=1, or say steps_per_epoch"
            )
        if self.input.stream._trainer.model == "shared":
            raise ValueError(
                "this model lives in this process, and the job's model is 'shared': start the master with "
                "--model replicated"
            )

    def _variables(self) -> dict[str, list[Any]]:
        model, optimizer = self.model, self.model.optimizer
        if not model.built:
            raise ValueError("the model is not built: give it an Input layer, or call model.build(), before fit()")
        if optimizer is None:
            raise ValueError("the model has no optimizer: compile() it before fit()")
        # A second call does nothing. The old optimizers (keras.optimizers.legacy) have another name for it.
        build = getattr(optimizer, "build", None) or optimizer._create_all_weights
        build(model.trainable_variables)
        return {"model": list(model.weights), "optimizer": _list(optimizer.variables)}

    def _look(self) -> None:
        if self._step > self._saved:
            self._save()
        elif self._checkpointer is not None:
            self._checkpointer._raise_unseen()

    def _save(self) -> None:
        if self._checkpointer is None:
            return
        self._saves.begins()
        self._checkpointer.save(self._step, self._variables())
        self._saved = self._step

    def _restore(self) -> None:
        trainer = self.input.stream._trainer
        if self._folder is not None:
            self._checkpointer = Checkpointer(self._folder, self.input.stream, memory=self.memory_every > 0)
        if self._checkpointer is not None:
            restored = self._checkpointer.restore()
            if restored is not None:
                self.restored_from = restored.source
                self._load(restored)
        self._step = self._saved = self.initial_step = trainer.last_step
        if self.restored_from in ("memory", "peer"):
            self._saved = 0  # that checkpoint may not be on storage

    def _load(self, restored: Restored) -> None:
        for part, variables in self._variables().items():
            values = restored.state[part]
            have, want = [tuple(np.shape(v)) for v in values], [tuple(v.shape) for v in variables]
            if have != want:
                where = next((i for i, (a, b) in enumerate(zip(have, want)) if a != b), min(len(have), len(want)))
                raise CheckpointError(
                    f"{restored.path}: the {part} has {len(have)} variables there and {len(want)} here, and variable "
                    f"{where} differs: build the model that was saved, or begin with another folder"
                )
            for variable, value in zip(variables, values):
                variable.assign(value)
        log.info("restored %s: training goes on after step %d", restored.path, restored.step)


def _list(variables: Any) -> list[Any]:
    """Returns an optimizer's variables: a method in older versions of Keras, a list in newer
    ones."""
    return list(variables() if callable(variables) else variables)
