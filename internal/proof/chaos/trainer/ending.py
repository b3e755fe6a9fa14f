"""How a process ends, and with which status; see crew.go."""

import faulthandler
import os
import signal
import threading
import traceback

import headrace

from .journal import DONE, FENCED, START, write

LEFT, REFUSED, NO_AGENT, FAILED, NO_DATASET, ALONE = 7, 3, 4, 5, 6, 8

leaving = threading.Event()  # the process is about to leave, whatever its other threads do
enough = threading.Event()  # SIGUSR1: all records of an input without an end are in the models


faulthandler.register(signal.SIGUSR2)  # see postmortem.go


def listen():
    signal.signal(signal.SIGUSR1, lambda *_: enough.set())


def failed_beside(error):
    """Ends the process after an exception in a thread. If the process is leaving, the exception
    means nothing: the streams were closed while threads read them."""
    if not leaving.is_set():
        failed(error)


def failed(error):
    """Ends the process with the status that belongs to an exception."""
    if isinstance(error, headrace.Fenced):
        end(REFUSED, error)
    if isinstance(error, headrace.DatasetError):
        end(NO_DATASET, error)
    if isinstance(error, headrace.AgentUnavailable):
        end(NO_AGENT, error)
    if isinstance(error, (EOFError, ConnectionError, TimeoutError)):
        end(ALONE, error)  # another rank, or the server of the model, has ended
    traceback.print_exception(type(error), error, error.__traceback__)
    end(FAILED, error)


def end(status, error):
    write(FENCED if status == REFUSED else START)
    os.write(2, f"chaos: {type(error).__name__}: {error}\n".encode())
    os._exit(status)


def finish():
    """Leaves the job. DONE is written only if every step was answered."""
    trainer = headrace.init()
    channels = list(trainer.control._channels.values())
    headrace.shutdown()
    if (fault := trainer.control.fault) is not None:
        end(REFUSED if isinstance(fault, headrace.Fenced) else FAILED, fault)
    if any(c.acked < c.stepped for c in channels if c.tracked):
        os.write(2, b"chaos: shutdown() gave up before its steps were answered\n")
        os._exit(NO_AGENT)
    write(DONE)
