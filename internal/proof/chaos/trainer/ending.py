"""How a process ends, and with which status; see crew.go."""

import faulthandler
import os
import signal
import threading
import traceback

import headrace

from .journal import DONE, FENCED, START, write

LEFT, REFUSED, NO_AGENT, FAILED, NO_DATASET, ALONE = 7, 3, 4, 5, 6, 8

leaving = threading.Event()  # the process goes, whatever its other threads are at
enough = threading.Event()  # SIGUSR1: all of an input without an end is in the models


faulthandler.register(signal.SIGUSR2)  # see postmortem.go


def listen():
    signal.signal(signal.SIGUSR1, lambda *_: enough.set())


def failed_beside(error):
    """An exception of a thread ends the process, unless that is leaving: then its
    streams are closed under the threads that read them."""
    if not leaving.is_set():
        failed(error)


def failed(error):
    """Ends the process as befits an exception."""
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
    """Leaves the group. DONE is written only if every step was answered."""
    trainer = headrace.init()
    channels = list(trainer.control._channels.values())
    headrace.shutdown()
    if (fault := trainer.control.fault) is not None:
        end(REFUSED if isinstance(fault, headrace.Fenced) else FAILED, fault)
    if any(c.acked < c.stepped for c in channels if c.tracked):
        os.write(2, b"chaos: shutdown() gave up before its steps were answered\n")
        os._exit(NO_AGENT)
    write(DONE)
