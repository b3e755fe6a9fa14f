"""One trainer, or the server of a shared model."""

import os
import sys
import threading
import warnings

import headrace

from . import ending, kinds, ranks, server
from .journal import START, cfg, write

KINDS = {"private": kinds.private, "shared": kinds.shared, "replicated": ranks.replicated, "plain": kinds.plain}


def main():
    if cfg["role"] == "server":
        return server.serve()
    ending.listen()
    warnings.simplefilter("ignore", headrace.UnsteppedWarning)
    threading.excepthook = lambda args: ending.failed_beside(args.exc_value)
    sys.excepthook = lambda _, error, __: ending.failed(error)
    write(START, number=os.getpid())
    KINDS[cfg["role"]]()
    ending.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
