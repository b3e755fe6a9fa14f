"""A private model is in each process; all streams of the process feed it. A shared model is in a
server, which outlives the trainers. With --journal the journal is the model."""

import time

import headrace

from .journal import APPLIED, RESTORED, cfg, write
from .reader import Reader, open_stream
from .saving import Saving
from .server import Server
from .sums import Model

PATIENCE = 300  # seconds; what rank 0 needs may be killed again and again


def first_stream():
    return open_stream(cfg["slots"][0])


def private():
    trainer = headrace.init()
    saving, model = Saving(trainer), Model()
    found = saving.restore(first_stream)
    if found is not None:
        model.load(found[1])

    def push(stream, number, keys, checks):
        model.add(keys, checks)
        write(APPLIED, stream, number)

    Reader(trainer, push, saving, model.state).run()


def shared():
    server = Server(cfg["server"])
    deadline = time.monotonic() + PATIENCE
    while cfg["rank"] != 0 and server.empty():  # rank 0 restores, and leases of other ranks would be in its way
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank 0 has not restored the model within {PATIENCE} s")
        time.sleep(0.05)
    trainer = headrace.init()
    saving = Saving(trainer) if trainer.rank == 0 else None
    if saving is not None and server.empty():
        server.load(go_back(saving, deadline))
    Reader(trainer, server.push, saving, server.state).run()


def go_back(saving, deadline):
    """The state of the newest checkpoint, or of the start. While the master still believes that killed
    trainers live, it refuses to restore, or gives nothing."""
    while True:
        try:
            if not saving.checkpoints():
                saving.ck.restore("start")
                write(RESTORED, cfg["server_life"])
                return Model().state()
            found = saving.restore(first_stream)
            if found is not None:
                return found[1]
            problem = "nothing"
        except headrace.Fenced:
            raise
        except headrace.CheckpointError as error:
            problem = error
        if time.monotonic() > deadline:
            raise RuntimeError(f"there are checkpoints, and restoring has not worked for {PATIENCE} s: {problem}")
        time.sleep(0.2)


def plain():
    # It saves nothing, so a new process starts over.
    trainer = headrace.init(resume=None if cfg["model"] == "shared" else "start")
    write(RESTORED)
    Reader(trainer, lambda stream, number, *_: write(APPLIED, stream, number), counts=cfg["model"] == "replicated").run()
