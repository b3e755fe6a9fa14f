"""Each benchmark in Python starts, measures something small and ends well. No figure is
asserted. `make test-bench` runs it. The two in Go have Go tests of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FRESHNESS = ["--rounds", "1", "--seconds", "1", "--rate", "1000"]
SMALLEST = {
    "bench.decode.bench": ["--records", "2000", "--rounds", "1"],
    "bench.acks.bench": ["--rows", "4000", "--seconds", "0.2", "--pairs", "1"],
    "bench.acks.bench --save-every": ["--rows", "4000", "--seconds", "0.5", "--pairs", "1", "--save-every", "0.2"],
    "bench.pulsar.bench": ["--records", "4000", "--rounds", "1"],
    "bench.freshness.bench": FRESHNESS,
    "bench.freshness.bench --source pulsar": ["--source", "pulsar", *FRESHNESS],
    "bench.freshness.bench --source rocketmq": ["--source", "rocketmq", *FRESHNESS],
    "bench.landing.bench": ["--records", "2000", "--rounds", "1", "--rate", "1000", "--seconds", "1"],
    "bench.flash.bench": ["--mib", "4", "--rounds", "2", "--persists", "2", "--rivals", "0"],
    "bench.flash.deltas": ["--mib", "4", "--rounds", "1"],
    "bench.rounds.bench": ["--steps", "25", "--pairs", "1"],
    "bench.rocketmq.bench": ["--records", "4000", "--rounds", "1"],
}


@pytest.mark.parametrize("program", SMALLEST)
def test_the_smallest_run_ends_well(program: str) -> None:
    command = [sys.executable, "-m", program.split()[0], *SMALLEST[program]]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]), done.stdout
