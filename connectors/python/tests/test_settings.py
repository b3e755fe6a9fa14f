"""Arguments, else HEADRACE_*, else torchrun's variables, else 0 of 1."""

from __future__ import annotations

import os

import pytest
from headrace._settings import resolve

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"}


def test_nothing_said_is_rank_0_of_1() -> None:
    s = resolve(env={})
    assert (s.job, s.rank, s.world_size, s.local_rank, s.attempt, s.master) == ("", 0, 1, 0, 0, None)
    assert s.agent == f"/tmp/headrace-{os.getuid()}/default.sock"


def test_torchrun_is_understood() -> None:
    s = resolve(env=TORCHRUN)
    assert (s.rank, s.world_size, s.local_rank, s.attempt) == (3, 8, 1, 2)


def test_our_variables_go_before_torchruns() -> None:
    ours = {
        "HEADRACE_RANK": "5", "HEADRACE_WORLD_SIZE": "6", "HEADRACE_LOCAL_RANK": "4", "HEADRACE_ATTEMPT": "7",
        "HEADRACE_JOB": "ads", "HEADRACE_MASTER": "m:7070", "HEADRACE_AGENT": "/run/a.sock",
    }  # fmt: skip
    s = resolve(env={**TORCHRUN, **ours})
    assert (s.rank, s.world_size, s.local_rank, s.attempt) == (5, 6, 4, 7)
    assert (s.job, s.master, s.agent) == ("ads", "m:7070", "/run/a.sock")


def test_arguments_go_before_everything() -> None:
    s = resolve(
        "j", master="m", agent="unix:/a", rank=1, world_size=2, attempt=9, env={**TORCHRUN, "HEADRACE_RANK": "5"}
    )
    assert (s.job, s.master, s.agent, s.rank, s.world_size, s.attempt) == ("j", "m", "/a", 1, 2, 9)


def test_the_socket_follows_the_job_and_the_runtime_folder() -> None:
    assert resolve(env={"HEADRACE_JOB": "ads", "XDG_RUNTIME_DIR": "/run/u"}).agent == "/run/u/headrace/ads.sock"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "x"}, "RANK='x' is not a whole number"),
        ({"HEADRACE_WORLD_SIZE": "0", "RANK": "0"}, "rank 0 of world size 0"),
        ({"RANK": "3"}, "rank 3 of world size 1.*HEADRACE_WORLD_SIZE"),
        ({"RANK": "-1"}, "RANK is -1"),
        ({"HEADRACE_AGENT": "/" + "a" * 107}, "108 bytes.*may have 107"),
    ],
)
def test_what_is_wrong_is_named(env: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(env=env)
