"""The quick start on a real Pulsar, with a small log. Its report is checked: what it claims of Headrace,
and its figures of the official client, which runs beside.

    make test-quickstart-pulsar     # needs java, and mvn once
"""

from __future__ import annotations

import pytest

from demo_run import (
    TOPIC_KILLS,
    TOPIC_RECORDS,
    Run,
    all_four_were_killed,
    nothing_is_lost,
    run_of,
    the_rival_had_the_same,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("quickstart"), TOPIC_RECORDS, TOPIC_KILLS, "--source", "pulsar")


def test_no_record_is_lost_and_each_repeat_has_its_reason(run: Run) -> None:
    nothing_is_lost(run.report, run.records)


def test_the_broker_was_killed_too_and_records_came_after_it(run: Run) -> None:
    all_four_were_killed(run.report)


def test_the_official_client_got_the_same_records_and_the_same_kills(run: Run) -> None:
    the_rival_had_the_same(run.report, "pulsar-client")
