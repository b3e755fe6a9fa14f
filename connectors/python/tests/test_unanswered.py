"""How long steps have had no answer. Times are invented."""

from __future__ import annotations

import math

from headrace._unanswered import Unanswered


def test_the_oldest_step_without_an_answer_counts_from_the_first_look_after_it() -> None:
    u = Unanswered()
    u.bound = 5.0
    assert u.until == math.inf
    u.look(100.0, stepped=3, acked=0)
    u.look(101.0, stepped=3, acked=0)
    u.look(102.0, stepped=7, acked=0)
    assert u.until == 105.0
    u.look(103.0, stepped=7, acked=2)
    assert u.until == 105.0  # batch 3 has no answer yet
    u.look(104.0, stepped=9, acked=3)
    assert u.until == 107.0  # the oldest without an answer is batch 4, first seen at 102
    u.look(104.5, stepped=9, acked=9)
    assert u.until == math.inf


def test_answers_that_keep_coming_never_make_it_wait() -> None:
    u = Unanswered()
    u.bound = 1.0
    for n in range(1000):
        now = n * 0.05
        u.look(now, stepped=n, acked=max(0, n - 10))  # each is answered half a second later
        assert u.until > now
