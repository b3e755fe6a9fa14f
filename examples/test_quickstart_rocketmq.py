"""The quick start on a real RocketMQ, small, and its report checked: what it claims of
us, and what it counted of the official client beside us.

    make test-quickstart-rocketmq     # needs java, and mvn once
"""

from __future__ import annotations

from pathlib import Path

import pytest

from demo_run import Run, nothing_is_lost, run_of

RECORDS = 250_000  # 25 s at 10,000/s: time for four kills


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root: Path = tmp_path_factory.mktemp("quickstart")
    return run_of(root, RECORDS, "--source", "rocketmq")


def test_no_record_is_lost_and_each_repeat_has_its_reason(run: Run) -> None:
    nothing_is_lost(run.report, RECORDS)


def test_the_broker_was_killed_too_and_records_came_after_it(run: Run) -> None:
    kills = run.report["kills"]
    assert [k["what"] for k in kills] == ["trainer", "agent", "master", "broker"]
    assert kills[3]["release_ms"] > kills[3]["back_ms"] > 0


def test_the_official_client_got_the_same_records_and_the_same_kills(run: Run) -> None:
    g = run.report["consumer_group"]
    assert g["foreign"] == 0
    assert g["applied_once"] + g["applied_twice"] + g["never"] == RECORDS
    assert [k["name"] for k in g["kills"]] == ["consumer-1", "consumer-2", "consumer-3", "broker"]
    assert "official Go client" in g["about"]
