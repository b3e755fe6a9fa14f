"""Deadlines of a process without its agent. Times are invented; TTL 5 s."""

from __future__ import annotations

from headrace._watchdog import Watchdog


def test_a_lost_agent_is_waited_for_until_a_tenth_before_its_session_ends() -> None:
    dog = Watchdog(5.0, 100.0)
    dog.sent(101.0)
    dog.answered(101.0, 4.0)  # its session was good for 4 s more when it answered
    assert dog.deadline == 104.5
    assert not dog.expired(102.5, connected=False)
    assert not dog.expired(104.4, connected=False)
    assert dog.expired(104.6, connected=False)


def test_the_deadline_counts_from_send_and_never_from_the_answer() -> None:
    dog = Watchdog(5.0, 100.0)
    dog.sent(101.0)
    dog.answered(101.0, 5.0)  # however late it came
    assert dog.deadline == 105.5


def test_an_agent_that_answers_is_trusted_even_with_its_session_gone() -> None:
    dog = Watchdog(5.0, 100.0)
    for t in range(101, 120):
        dog.sent(float(t))
        dog.answered(float(t), 0.0)
        assert not dog.expired(t + 0.5, connected=True)
    assert dog.expired(120.0, connected=False)


def test_an_agent_that_hangs_is_found_by_its_silence() -> None:
    dog = Watchdog(5.0, 100.0)
    dog.sent(101.0)
    times = [101.5, 102.5, 103.5, 104.4]
    assert not any(dog.expired(t, connected=True) for t in times)
    assert dog.expired(104.6, connected=True)
    assert dog.patience(104.4) <= 0.11


def test_a_process_that_was_stopped_asks_once_more() -> None:
    dog = Watchdog(5.0, 100.0)
    dog.sent(101.0)
    assert not dog.expired(102.0, connected=True)
    assert not dog.expired(160.0, connected=True)
    assert not dog.expired(160.2, connected=True)
    assert dog.expired(160.3, connected=True)
    other = Watchdog(5.0, 100.0)
    other.sent(101.0)
    other.expired(160.0, connected=True)
    other.answered(160.0, 5.0)
    assert not other.expired(160.3, connected=True)


def test_an_older_answer_does_not_take_the_deadline_back() -> None:
    dog = Watchdog(5.0, 100.0)
    dog.answered(110.0, 5.0)
    dog.answered(105.0, 5.0)
    assert dog.heard == 110.0
