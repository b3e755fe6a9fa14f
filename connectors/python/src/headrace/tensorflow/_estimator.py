"""Estimator: checkpoints that know their records, local and with parameter servers.

    model = tf.estimator.DNNLinearCombinedClassifier(..., config=RunConfig(save_checkpoints_steps=1000))
    trainable = headrace.tensorflow.estimator(model)
    trainable.train(lambda: headrace.tensorflow.dataset("clicks", 1024).map(features_and_label))

Only TensorFlow up to 2.15 has Estimator.
"""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from headrace._checkpoint import Checkpointer
from headrace._errors import CheckpointError
from headrace._trainer import Trainer

from . import _chain, _prefix, _roles, _variables, _waiting
from ._cluster import CHIEFS, Task, init_by_task, task
from ._input import Input
from ._silent import Saves

log = logging.getLogger("headrace")

AGAIN = 75  # exit status: the parameter servers were lost, start this process again
OTHERS_SECONDS = 180.0  # how long a chief waits for the other trainers to end when the model was lost
_OTHERS_PAUSE = 0.5


class Trainable:
    """An Estimator that trains on Headrace's records.

    estimator: any `tf.estimator.Estimator`, canned ones too. Its model_dir holds the
    checkpoints. checkpointer: a `headrace.Checkpointer` of that folder; by default one is
    made. RunConfig says when to save (save_checkpoints_steps or _secs) and how many
    checkpoints stay (keep_checkpoint_max).

    Each checkpoint has a manifest with its records. train() goes back to the newest checkpoint
    that has a manifest, and the records in it do not come again. It refuses an input whose
    batches it cannot count: one that does not come from `headrace.tensorflow.dataset`, or
    that goes through shuffle(), batch(), repeat() and the like.

    memory_every: after every so many batches the variables are copied into memory
    (docs/FLASH.md); 0: never. train() then goes back to the newest checkpoint of memory and
    model_dir; `restored_from` says where it was: "memory", "peer" or "storage"; "": there was
    none. It is refused with parameter servers, because the model outlives its trainers there.

    With parameter servers in TF_CONFIG: see docs/tensorflow.md.
    """

    def __init__(self, estimator: Any, checkpointer: Checkpointer | None = None, *, memory_every: int = 0) -> None:
        self.inner = estimator
        self.model_dir = os.path.abspath(estimator.model_dir)
        self.task: Task = task()
        self._checkpointer = checkpointer
        if checkpointer is not None and checkpointer.dir != self.model_dir:
            raise ValueError(
                f"the Checkpointer's folder is {checkpointer.dir}, and the Estimator's model_dir {self.model_dir}: "
                "make them the same"
            )
        if isinstance(memory_every, bool) or not isinstance(memory_every, int) or memory_every < 0:
            raise ValueError(f"memory_every={memory_every!r}; it is a number of batches, or 0")
        if memory_every and checkpointer is not None and checkpointer._flash is None:
            raise ValueError("memory_every: make the Checkpointer with memory=True")
        self.memory_every = memory_every
        self.restored_from = ""
        self._end: _waiting.JobEnd | None = None  # of a worker, in train_and_evaluate()
        # The checkpoint that this process's model was last equal to (its prefix; None: a new
        # model; "": a checkpoint in memory), and how many batches are in it.
        self._kept: tuple[str | None, int] | None = None
        #: The Estimator that trains. It has the model of the given one, and our Saver.
        self.estimator = tf.estimator.Estimator(
            self._model_fn,
            model_dir=estimator.model_dir,
            config=estimator.config,
            warm_start_from=getattr(estimator, "_warm_start_settings", None),
        )

    def __getattr__(self, name: str) -> Any:
        """evaluate(), predict(), export_saved_model() and the rest are the Estimator's."""
        if name.startswith("_") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return f"Trainable({type(self.inner).__name__}, model_dir {self.model_dir!r})"

    @property
    def is_chief(self) -> bool:
        return self.task.type in CHIEFS

    def train(
        self,
        input_fn: Callable[..., tf.data.Dataset],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[Any] | None = None,
    ) -> Trainable:
        """Does what Estimator.train() does. If it is called again, it goes on.

        Raises ValueError, CheckpointError, Fenced. An error in reading the records is raised as
        it is; TensorFlow alone would raise an error of its own with the text.
        """
        trainer = init_by_task()
        self._check(trainer)
        if self._checkpointer is None and self.is_chief:  # a worker saves nothing
            self._checkpointer = Checkpointer(self.model_dir, memory=self.memory_every > 0)
        run = _Run(self, trainer, self._checkpointer)
        self._run = run
        hook = _ChiefHook(run, list(saving_listeners or ())) if self.is_chief else _StepHook(run)
        try:
            self.estimator.train(run.counted(input_fn), [hook, *(hooks or ())], steps, max_steps)
        except tf.errors.OpError as error:
            if run.input is not None and run.input.error is not None:
                raise run.input.error from error
            raise
        return self

    def train_and_evaluate(self, train_spec: Any, eval_spec: Any) -> None:
        """Does what tf.estimator.train_and_evaluate() does, for this process's task of TF_CONFIG.

        The chief and the workers train. A parameter server serves until the chief has ended.
        Under `headrace run` it serves until run ends it, so call this once in each task. An
        evaluator evaluates each new checkpoint that has a manifest, and ends after the last
        one. Without TF_CONFIG this process trains, and evaluates after each checkpoint, at
        most every `throttle_secs`.
        """
        _roles.run(self, train_spec, eval_spec)

    def _check(self, trainer: Trainer) -> None:
        shared, servers = trainer.model == "shared", self.task.servers > 0
        if servers and not shared:
            raise ValueError(
                f"TF_CONFIG has parameter servers, so the model outlives its trainers, and this job's model is "
                f"{trainer.model!r}: start the master with --model shared"
            )
        if shared and not servers:
            raise ValueError(
                "this Estimator's model lives in this process, and the job's model is 'shared': start the master with "
                "--model replicated, or name parameter servers in TF_CONFIG"
            )
        if shared and self.memory_every:
            raise ValueError(
                "memory_every with parameter servers: the model lives on them and outlives its trainers. Leave it out"
            )
        if not servers and trainer.world_size > 1 and trainer.model != "private":
            raise ValueError(
                f"{trainer.world_size} processes and no parameter server: each would train a model of its own. Use "
                "parameter servers, or one process, or --model private"
            )

    def _model_fn(self, features: Any, labels: Any, mode: Any, config: Any) -> Any:
        spec = self.inner.model_fn(features=features, labels=labels, mode=mode, config=config)
        if mode != tf.estimator.ModeKeys.TRAIN:
            return spec
        if spec.scaffold is not None and spec.scaffold.saver is not None:
            raise ValueError("the model_fn gives a Scaffold with a Saver of its own: leave the Saver out")
        return spec._replace(scaffold=_Scaffold(self._run, spec.scaffold))


class _Run:
    """One train(): what its hooks, its Saver and its Scaffold share."""

    def __init__(self, owner: Trainable, trainer: Trainer, checkpointer: Checkpointer | None) -> None:
        self.owner = owner
        self.trainer = trainer
        self.checkpointer = checkpointer
        self.config = owner.inner.config
        self.folder = owner.model_dir
        self.input: Input | None = None
        self.ends_early = False  # the dataset may end before the input does
        self.scaffold: _Scaffold | None = None
        self.saved = -1  # of the newest checkpoint: its global step if the model is shared, else its batches
        self.shared = trainer.model == "shared"
        self._sessions = 0

    def counted(self, input_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Returns input_fn with a check of the dataset that it returns."""
        names = set(inspect.signature(input_fn).parameters)

        def checked(mode: Any = None, params: Any = None, config: Any = None) -> Any:
            told = {"mode": mode, "params": params, "config": config}
            dataset = input_fn(**{name: value for name, value in told.items() if name in names})
            if not isinstance(dataset, tf.data.Dataset):
                raise ValueError(
                    f"input_fn gave a {type(dataset).__name__}: give a tf.data.Dataset, whose batches can be counted"
                )
            self.input = _chain.input_of(dataset)
            self.ends_early = _chain.ends_early(dataset)
            ahead = _chain.pulls_ahead(dataset)
            if ahead and self.shared and self.owner.is_chief:
                raise ValueError(
                    f"{ahead} on the chief of a shared model: an exact save waits until all pulled batches are in the "
                    "model. Leave it out on the chief; the agent reads ahead in a process of its own"
                )
            return dataset

        return checked

    def session_begins(self) -> None:
        """A second session of one train() means that the parameter servers were lost, and
        the model with them. TensorFlow would go on with an old model and say nothing."""
        self._sessions += 1
        if self._sessions > 1:
            if self.owner._end is not None:
                self.owner._end.servers_lost()
            log.error(
                "a parameter server was lost, and the model with it: this process ends with status %d. Start it again: "
                "all go back to the newest checkpoint", AGAIN
            )  # fmt: skip
            logging.shutdown()
            os._exit(AGAIN)

    def begin(self, session: Any) -> None:
        """Makes the model of a session on the chief. It is the one that lives on the servers,
        or that of the newest checkpoint, or a new one."""
        scaffold = self.scaffold
        assert scaffold is not None
        if self.shared and not len(session.run(scaffold.missing)):
            self._check_model_of(session)
            log.warning("the model lives on the parameter servers: training goes on with it, and nothing is loaded")
            _prefix.tell_tensorflow(self.trainer, self.folder)
            self.saved = next((m.step for m in _prefix.bound(self.trainer, self.folder)), -1)
            return
        if self.shared:
            session.run(scaffold.unmark)
        prefix, restored = self._where_to_begin()
        if restored is not None and restored.state is not None:  # of a save in memory
            _variables.assign(session, restored.state, f"the checkpoint of {restored.path}")
            prefix = ""
        elif prefix is None:
            _prefix.warn_of_unbound(self.trainer, self.folder)
            session.run(scaffold.real_init_op, feed_dict=scaffold.init_feed_dict)
            if scaffold.real_init_fn is not None:
                scaffold.real_init_fn(session)
        else:
            scaffold.saver.load(session, prefix)
            self.saved = self.trainer.last_step
        if self.shared:
            session.run(scaffold.mark)
        self.owner._kept = prefix, self.trainer.last_step
        _prefix.tell_tensorflow(self.trainer, self.folder, prefix or None)

    def _check_model_of(self, session: Any) -> None:
        """Raises CheckpointError if the servers hold the model of another training. Under
        `headrace run` servers outlive a training."""
        assert self.scaffold is not None
        there = os.fsdecode(session.run(self.scaffold.model_of))
        if there != self.folder:
            raise CheckpointError(
                f"the parameter servers hold the model of another training, whose model_dir is {there}; here it is "
                f"{self.folder}. Each training needs parameter servers of its own: start `headrace run` once for each "
                "training, or start the servers again"
            )

    def _where_to_begin(self) -> tuple[str | None, Any]:
        """Returns the checkpoint to load (None: the model is new), and what restore() has
        returned, if it was called. A process restores once: a second train() loads the
        checkpoint that the first one has saved at its end."""
        kept = self.owner._kept
        if self.shared or kept is None:
            restored = self._restored()
            if restored is None:
                return None, None
            self.owner.restored_from = restored.source
            return str(restored.path), restored
        prefix, step = kept
        if step != self.trainer.last_step or prefix == "":
            raise CheckpointError(
                f"the last train() ended with an error, and the {self.trainer.last_step - step} batches that it had "
                "trained since its last checkpoint are lost: start this process again, then they come again"
            )
        return prefix, None

    def _restored(self) -> Any:
        """Restores the newest checkpoint. If the model was lost, it first waits until the other
        trainers, which still train on that model, have ended."""
        deadline = time.monotonic() + OTHERS_SECONDS
        while True:
            assert self.checkpointer is not None
            restored = self.checkpointer.restore()
            if restored is not None or not self.trainer.not_restored:
                return restored
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"the parameter servers have lost the model, and others still train: {self.trainer.not_restored}. "
                    "End all workers and start them again; after an upgrade of headrace, also the servers"
                )
            time.sleep(_OTHERS_PAUSE)

    def step(self) -> None:
        """Says that the oldest unstepped batch is in the model."""
        assert self.input is not None
        self.input.step()

    def save(self, session: Any, global_step: Any, listeners: Sequence[Any]) -> bool:
        """Saves the model with its records; True: a listener asks to stop."""
        scaffold, checkpointer = self.scaffold, self.checkpointer
        assert scaffold is not None
        assert checkpointer is not None
        self.hear()
        with checkpointer.exact() as cut:
            step = int(session.run(global_step))  # read again, because others have trained until now
            for listener in listeners:
                listener.before_save(session, step)
            graph = bool(getattr(self.config, "checkpoint_save_graph_def", True))
            path = os.path.join(self.folder, _prefix.NAME)
            _prefix.make_room(f"{path}-{step}", self.saved)
            cut.path = scaffold.saver.save(
                session, path, global_step=step, write_state=False, write_meta_graph=graph
            )  # fmt: skip
        checkpointer.bind(cut, files=_prefix.files_of(str(cut.path)), step=step if self.shared else None)
        self.saved = self.now(step)
        self.owner._kept = str(cut.path), self.trainer.last_step
        _prefix.retain(self.trainer, self.folder, self.config.keep_checkpoint_max or 0)
        if self.owner.memory_every:
            _prefix.remove_ours(self.trainer, self.folder)
        _prefix.tell_tensorflow(self.trainer, self.folder)
        log.info("saved %s with its records", cut.path)
        stops = [listener.after_save(session, step) for listener in listeners]
        return any(stops)

    def to_memory(self, session: Any) -> None:
        """Copies the model into memory if it is time, and it was not saved just now."""
        every, step, checkpointer = self.owner.memory_every, self.trainer.last_step, self.checkpointer
        if not every or step % every or step == self.saved:
            return
        assert checkpointer is not None
        self.hear()
        try:
            checkpointer.save(step, lambda: _variables.values(session), storage=False)
        except (CheckpointError, OSError) as error:
            self._not_in_memory(error)

    def hear(self) -> None:
        """Waits for the save in memory that is under way. If it fails, that is logged, and other
        saves go on."""
        checkpointer = self.checkpointer
        assert checkpointer is not None
        if not self.owner.memory_every:
            return
        try:
            checkpointer._finish(storage=False)
            checkpointer._raise_unseen()
        except (CheckpointError, OSError) as error:
            self._not_in_memory(error)

    def _not_in_memory(self, error: Exception) -> None:
        if self.trainer.control.fault is not None:
            raise error
        log.warning("a checkpoint was not saved in memory; training goes on: %s", error)

    def now(self, global_step: int) -> int:
        """The value that `saved` would have after a save now."""
        return global_step if self.shared else self.trainer.last_step

    def end(self) -> None:
        """Gives back what was pulled ahead and is not trained."""
        assert self.input is not None
        self.input.give_back()


class _Saver(tf.compat.v1.train.Saver):
    """A Saver that restores only the checkpoint that Headrace restores."""

    def __init__(self, run: _Run) -> None:
        # Checkpoints are removed with their manifests, by us: TensorFlow would remove
        # the old one before the new one is bound.
        super().__init__(sharded=True, max_to_keep=None, defer_build=True, save_relative_paths=True)
        self._run = run

    def restore(self, sess: Any, save_path: str) -> None:
        """TensorFlow calls it with the newest checkpoint of its list."""
        self._run.begin(sess)

    def load(self, session: Any, prefix: str) -> None:
        super().restore(session, prefix)


class _Scaffold(tf.compat.v1.train.Scaffold):
    """The model's Scaffold. init_op and init_fn are ours; the model's own run if the model is new."""

    def __init__(self, run: _Run, inner: Any) -> None:
        kept = ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op", "summary_op")
        told = {name: getattr(inner, name) for name in kept} if inner is not None else {}
        feed = inner.init_feed_dict if inner is not None else None
        super().__init__(init_feed_dict=feed, saver=_Saver(run), **told)
        self._run = run
        self.real_init_fn = inner.init_fn if inner is not None else None
        #: Names of the model's variables that are not there yet.
        self.missing: Any = None
        #: Operations: mark says that the model is whole, unmark that it is not.
        self.mark: Any = None
        self.unmark: Any = None
        #: The model_dir of the chief that made the model.
        self.model_of: Any = None
        run.scaffold = self

    def finalize(self) -> Any:
        """TensorFlow calls it at the beginning of each session."""
        self._run.session_begins()
        if self._run.owner.memory_every:
            _variables.check()
        variables = tf.compat.v1.global_variables()
        missing = tf.compat.v1.report_uninitialized_variables([*variables, *self._marker()])
        self.missing = tf.identity(missing)  # TensorFlow warns of an op that nothing uses in the graph
        super().finalize()
        if self._run.shared and not self._run.owner.is_chief:
            _waiting.for_model(self.ready_for_local_init_op, self._run.config, self._run.owner._end)
        return self

    def _marker(self) -> list[Any]:
        """The variable that is on a parameter server while the model is whole. A local model has none.

        If one of several servers is lost, the others still have their variables. While the chief loads
        a checkpoint, there is a moment when all variables are there and some are not loaded yet.
        Without the marker a worker would begin at that moment, and the load would overwrite its batch.
        If the chief were killed, the next one would go on with variables of two different steps.

        Its value is the chief's model_dir. A worker does not compare it: the folder may have another path there.
        """
        if not self._run.shared:
            return []
        with tf.device("/job:ps/task:0"):
            marker = tf.compat.v1.Variable(
                os.fsencode(self._run.folder),
                trainable=False,
                collections=[],
                name="headrace_whole_model_of",
                use_resource=True,
            )
            self.model_of = marker.read_value()
            self.mark = marker.initializer
            self.unmark = tf.raw_ops.DestroyResourceOp(resource=marker.handle, ignore_lookup_error=True)
        # A worker waits for the marker before its first batch.
        self._ready_for_local_init_op: Any = _variables.ready(self.ready_for_local_init_op, marker)
        return [marker]

    @property
    def init_op(self) -> Any:
        return None

    @property
    def real_init_op(self) -> Any:
        return super().init_op

    @property
    def init_fn(self) -> Any:
        return self._run.begin


class _StepHook(tf.compat.v1.train.SessionRunHook):
    """Says after each run that its batch is in the model."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._run.step()

    def end(self, session: Any) -> None:
        self._run.end()


class _ChiefHook(tf.compat.v1.train.CheckpointSaverHook):
    """Steps, then saves when it is time. An Estimator that is given a CheckpointSaverHook
    makes none of its own."""

    def __init__(self, run: _Run, listeners: list[Any]) -> None:
        self._run = run
        self._listeners = listeners  # the Estimator adds to it
        self._global_step: Any = None
        config = run.config
        every = {"every_secs": config.save_checkpoints_secs, "every_steps": config.save_checkpoints_steps}
        self._timer = tf.compat.v1.train.SecondOrStepTimer(**every) if any(every.values()) else None
        self._saves = Saves(config.save_checkpoints_secs or 0)
        self._seen = -1  # the global step at the last look in a silence

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_global_step()
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._timer is not None:
            self._begins(int(session.run(self._global_step)))

    def before_run(self, run_context: Any) -> Any:
        if self._timer is not None and not self._run.ends_early:
            self._await_batch(run_context)
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._run.step()
        self._save_when_due(run_context, run_values)
        self._run.to_memory(run_context.session)

    def _save_when_due(self, run_context: Any, run_values: Any) -> None:
        if self._timer is None or not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        step = int(run_context.session.run(self._global_step))
        if self._timer.should_trigger_for_step(step) and self._save(run_context, step):
            run_context.request_stop()

    def _await_batch(self, run_context: Any) -> None:
        run, timer = self._run, self._timer
        assert run.input is not None
        assert timer is not None
        self._seen = -1

        def look() -> None:
            step = int(run_context.session.run(self._global_step))
            seen, self._seen = self._seen, step
            # Saves by steps: others may train meanwhile, and make a save due. If the step is that of the
            # last look, nobody trains, and all is silent.
            due = self._saves.seconds or not run.shared or step == seen or timer.should_trigger_for_step(step)
            if due and run.now(step) not in (run.saved, 0) and self._save(run_context, step):
                raise tf.errors.OutOfRangeError(None, None, "a listener of a save asks to stop")

        self._saves.await_batch(run.input, look)

    def _begins(self, step: int) -> None:
        """A save begins, or the training: the next save is counted from here."""
        assert self._timer is not None
        self._timer.update_last_triggered_step(step)
        self._saves.begins()

    def _save(self, run_context: Any, step: int) -> bool:
        """True: a listener asks to stop."""
        self._begins(step)
        try:
            return self._run.save(run_context.session, self._global_step, self._listeners)
        except CheckpointError as error:
            if self._run.trainer.control.fault is not None:
                raise
            log.warning("a checkpoint was not saved; training goes on: %s", error)
            return False

    def end(self, session: Any) -> None:
        self._run.end()
        step = int(session.run(self._global_step))
        if self._run.now(step) != self._run.saved:
            self._run.save(session, self._global_step, self._listeners)
        for listener in self._listeners:
            listener.end(session, step)


__all__ = ["AGAIN", "Trainable"]
