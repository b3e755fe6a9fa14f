"""Deadlines of a process without its agent. Times are invented; TTL 5 s."""

from __future__ import annotations

import pytest
from headrace._watchdog import Watchdog


def test_a_lost_agent_is_waited_for_until_a_tenth_before_its_session_ends() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    dog.answered(101.0, 4.0)  # the PING left at 101; the agent's session is good for 4 s
    assert dog.deadline == 104.5
    assert not dog.expired(102.5, connected=False)
    assert not dog.expired(104.4, connected=False)
    assert dog.expired(104.6, connected=False)


def test_the_deadline_counts_from_send_and_never_from_the_answer() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    dog.answered(101.0, 5.0)  # however late it came
    assert dog.deadline == 105.5


def test_an_agent_that_answers_is_trusted_even_with_its_session_gone() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    for t in range(101, 120):
        dog.sent(float(t))
        dog.answered(float(t), 0.0)
        assert not dog.expired(t + 0.5, connected=True)
    assert dog.expired(120.0, connected=False)


def test_an_agent_that_hangs_is_found_by_its_silence() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    times = [101.5, 102.5, 103.5, 104.4]
    assert not any(dog.expired(t, connected=True) for t in times)
    assert dog.expired(104.6, connected=True)
    assert dog.patience(104.4) <= 0.11


def test_a_process_that_was_stopped_asks_once_more() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    assert not dog.expired(102.0, connected=True)
    assert not dog.expired(160.0, connected=True)
    assert not dog.expired(160.2, connected=True)
    assert dog.expired(160.3, connected=True)
    other = Watchdog(5.0, 100.0, shared=True)
    other.sent(101.0)
    other.expired(160.0, connected=True)
    other.answered(160.0, 5.0)
    assert not other.expired(160.3, connected=True)


def test_an_older_answer_does_not_take_the_deadline_back() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.answered(110.0, 5.0)
    dog.answered(105.0, 5.0)
    assert dog.heard == 110.0


# The master gives our rows to others half a second (a tenth of the TTL) after the end of the agent's
# session. That end is not earlier than the moment when a PING was sent plus the time in its PONG.


@pytest.mark.parametrize("left", [0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 1.5, 2.5, 4.5])
@pytest.mark.parametrize("silent_from", [0.0, 0.05, 0.5, 1.0, 1.1, 2.0, 3.0, 4.0])
def test_who_shares_a_model_has_ended_when_its_rows_are_with_others_whenever_its_agent_fell_silent(
    left: float, silent_from: float
) -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    now, session_ends = 101.0, 101.0 + left
    while not dog.expired(now, connected=True):
        assert now < session_ends + 0.5
        if now >= dog.due:
            dog.sent(now)
            if now < min(101.0 + silent_from, session_ends) or now == 101.0:
                dog.answered(now, session_ends - now)
        now += dog.patience(now)


def test_an_agent_that_answers_after_its_session_leaves_the_watchdog_waiting() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    dog.answered(101.0, 0.4)
    assert dog.due == pytest.approx(101.4)
    dog.sent(101.4)
    assert not dog.expired(101.64, connected=True)
    dog.answered(101.4, 0.0)
    assert not dog.expired(102.3, connected=True)
    dog.sent(102.4)
    assert not dog.expired(103.3, connected=True)  # it may take as long for its next answer
    assert dog.expired(103.5, connected=True)


def test_a_late_answer_of_an_agent_whose_session_is_good_ends_nobody() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)
    dog.sent(101.0)
    dog.answered(101.0, 3.5)  # the agent is about to renew its session with the master
    dog.sent(102.0)
    assert not any(dog.expired(t, connected=True) for t in (102.5, 103.0, 103.5, 103.9))
    dog.answered(102.0, 3.5)
    assert not dog.expired(104.9, connected=True)


def test_if_late_work_cannot_reach_a_checkpoint_a_short_silence_ends_no_trainer() -> None:
    dog = Watchdog(5.0, 100.0, shared=False)
    dog.sent(101.0)
    dog.answered(101.0, 0.4)
    dog.sent(101.4)
    assert not dog.expired(102.3, connected=True)
    assert dog.expired(102.5, connected=True)


def test_a_welcome_that_took_long_is_not_the_end() -> None:
    dog = Watchdog(5.0, 100.0, shared=True)  # the welcome came late, because the agent waited for its master
    assert not dog.expired(120.0, connected=True)
    assert dog.due < 120.0
    dog.sent(120.0)
    dog.answered(120.0, 4.0)
    assert not dog.expired(121.0, connected=True)


def test_with_a_short_ttl_the_time_to_ask_once_more_is_short_too() -> None:
    dog = Watchdog(1.0, 100.0, shared=True)
    dog.sent(100.0)
    dog.answered(100.0, 0.8)
    assert not dog.expired(110.0, connected=True)
    assert not dog.expired(110.04, connected=True)
    assert dog.expired(110.06, connected=True)


def test_an_older_of_two_answers_leaves_the_younger_ping_open() -> None:
    dog = Watchdog(5.0, 100.0, shared=False)
    dog.sent(101.0)
    dog.sent(102.0)
    dog.answered(101.0, 2.0)
    assert not dog.expired(102.4, connected=True)
    assert dog.expired(103.1, connected=True)


def test_while_a_batch_waits_for_an_answer_the_agent_is_asked_ten_times_as_often() -> None:
    dog = Watchdog(5.0, 100.0, shared=False)
    dog.sent(101.0)
    dog.answered(101.0, 0.0)  # the session is over: no batch may be yielded
    assert dog.trust == 101.0
    assert dog.due == 102.0
    dog.eager = True
    assert dog.due == pytest.approx(101.1)
