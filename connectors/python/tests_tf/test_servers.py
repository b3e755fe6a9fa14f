"""examples/estimator_clicks with a parameter server, a chief, two workers and an evaluator,
under `headrace run job.yaml`: whatever is killed, no record is lost, and none is in the model
twice but those of a killed trainer's batch."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from typing import Any

import pytest
import topic

pytest.importorskip("tensorflow_estimator", reason="only TensorFlow 2.15 has Estimator")
from tasks import HOLDS_A_BATCH, Tasks, made_lines

ROWS, EVERY = 20, 60


def tasks(job: Any, records: int, rest: float) -> Tasks:
    numbers = {"records": records, "rows": ROWS, "every": EVERY, "keep": 0, "rest": rest}
    made = Tasks(job, "clicks.yaml", *(f"--{name}={value}" for name, value in numbers.items()))
    subprocess.run([sys.executable, "make_log.py", str(records), "data"], cwd=made.work, check=True)
    return made


def test_a_cluster_trains_each_record_once(job: Any) -> None:
    made = tasks(job, 6000, 0)
    made.start()
    text = made.ends()
    assert "in the model once 6000, never 0, more often 0" in text, text
    assert made.check().sum() == 6000
    for line in ("chief has ended well", "ps 0 has ended (", "evaluator has ended"):
        assert f"[headrace] {line}" in text, text
    # On a busy machine a worker may come so late that nothing is left to train, and is ended.
    assert re.search(r"\[headrace\] worker 1( has ended well|: .* so nothing is left to train)", text), text
    assert "it starts again" not in text, text


KILLS = ("worker 0", "worker 1", "chief", "ps 0", "agent", "master", "everything")


@pytest.mark.timeout(3600)
def test_whatever_is_killed_no_record_is_lost(job: Any, rng: random.Random) -> None:
    """Each kind of kill once, in a random order, each after a new checkpoint."""
    records = 60_000
    kills = os.environ.get("KILLS", "").split(",") if os.environ.get("KILLS") else rng.sample(KILLS, len(KILLS))
    print("kills:", ",".join(kills))
    made = tasks(job, records, 0.05)
    made.start()
    for victim in kills:
        made.trains()
        made.kill(victim)
    text = made.ends()
    # A trainer that was killed had one batch in hand, which may be in the model and comes again.
    in_hand = ROWS * sum(victim in HOLDS_A_BATCH for victim in kills)
    hist = made.check(in_hand)
    assert (hist == 0).sum() == 0, f"{(hist == 0).sum()} records are lost"
    assert 0 <= int(hist.sum()) - records <= in_hand, (int(hist.sum()), text)
    # A trainer starts again because it was killed, or with its server, and for nothing else.
    failed = [line for line in text.splitlines() if "exit status" in line and "starts again" in line]
    assert [line for line in failed if "exit status 75;" not in line] == []


def test_a_cluster_learns_online_from_a_topic_whatever_is_killed(job: Any, rng: random.Random) -> None:
    """The topic has no end: its second half is written while the cluster trains. A trainer, the
    server and everything are killed, each after a new checkpoint. Then it is silent, and in the end all
    is in a checkpoint."""
    records = 20_000
    made = Tasks(
        job, "kafka.yaml", f"--records={records}", f"--rows={ROWS}", "--seconds=2", "--rest=0.02", "--max-wait=1"
    )
    log = [line for i in range(4) for line in made_lines(i, records, 4)]
    half = records // 2
    kills = [rng.choice(HOLDS_A_BATCH), "ps 0", "everything"]
    rng.shuffle(kills)
    print("kills:", ",".join(kills))
    with topic.kafka(made.work, "".join(log[:half])) as address:
        spec = made.work / "kafka.yaml"
        spec.write_text(spec.read_text().replace("127.0.0.1:9092", address).replace("end: latest ", "end: never "))
        made.start()
        for n, victim in enumerate(kills):
            made.trains()
            made.kill(victim)
            if n == 0:
                topic.produce(address, "".join(log[half:]))
        made.until("a checkpoint of all records", lambda: made.saved(records // 4))
        made.stop()
    in_hand = ROWS * sum(victim in HOLDS_A_BATCH for victim in kills)
    hist = made.check(in_hand)
    assert (hist == 0).sum() == 0, f"{(hist == 0).sum()} records are lost"
    assert 0 <= int(hist.sum()) - records <= in_hand, (int(hist.sum()), made.text())
