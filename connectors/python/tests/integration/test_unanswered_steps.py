"""The loss of a node costs a bounded number of steps, because next() waits while steps are unanswered
for too long (guarantee 5)."""

from __future__ import annotations

import signal
import time

from agent import poll
from test_step_files import Node, applied, node, once

__all__ = ["node"]

# Steps a batch, waits for its parent's word, and goes on to the end.
TRAINER = """
import logging, os, sys, time, headrace
logging.basicConfig(level=logging.WARNING)
stream = headrace.dataset("rows").batches(4, max_unanswered=0.5)
for n, batch in enumerate(stream):
    ids = batch["id"].tolist()
    stream.step()
    os.write(1, (" ".join(map(str, ids)) + "\\n").encode())
    if n == 0:
        sys.stdin.readline()
    if n < 100:
        time.sleep(0.1)  # batches that are here already last longer than the bound
headrace.shutdown()
"""


def test_next_waits_while_the_master_answers_no_step_and_goes_on_behind_it(node: Node) -> None:
    node.begin()
    trainer = node.trainer(TRAINER, stdin=True)
    trainer.printed(1)
    node.master.send_signal(signal.SIGSTOP)
    assert trainer.process.stdin is not None
    trainer.process.stdin.write(b"\n")
    trainer.process.stdin.close()
    poll(lambda: "next() waits, because steps have been unanswered" in trainer.log.read_text())
    said = len(applied(trainer))
    time.sleep(0.5)  # a trainer that does not wait would step five batches
    assert len(applied(trainer)) == said, trainer.log.read_text()
    node.master.send_signal(signal.SIGCONT)
    log = trainer.ended()
    assert "the steps were answered" in log
    once(node, trainer)
