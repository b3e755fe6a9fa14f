"""Settings come from arguments, else HEADRACE_*, else torchrun's variables, else rank 0 of 1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from headrace._master import Target
from headrace._settings import job_of_folder, resolve

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


SETTINGS = """\ufeff# Settings of every `headrace` that is started in this folder.
log_level: warn # job: no
connections:
  kafka:
    job: neither
job: clicks.b-1   # of this folder
model: replicated
"""


def test_the_job_of_the_folder_is_found_as_the_command_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = {"XDG_RUNTIME_DIR": "/run/u", "XDG_STATE_HOME": "/state"}
    assert resolve(env=runtime).agent == "/run/u/headrace/default.sock"
    (tmp_path / "headrace.yaml").write_text(SETTINGS, encoding="utf-8")
    s = resolve(env={**runtime, "HEADRACE_JOB": ""})
    assert (s.job, s.agent) == ("clicks.b-1", "/run/u/headrace/clicks.b-1.sock")
    assert Target.find(env=runtime).state == "/state/headrace/clicks.b-1"


def test_naming_the_job_or_the_agent_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.yaml").write_text("job: [no]\n")
    assert resolve("a", env={}).job == "a"
    assert resolve(env={"HEADRACE_JOB": "b"}).job == "b"
    assert resolve(env={"HEADRACE_AGENT": "/run/a.sock"}).job == ""
    assert resolve(agent="/run/a.sock", env={}).job == ""
    assert Target.find("a", env={"XDG_STATE_HOME": "/s"}).state == "/s/headrace/a"
    assert Target.find(env={"HEADRACE_STATE": "/s"}).state == "/s"
    for token in ({"HEADRACE_TOKEN": "t"}, {"HEADRACE_TOKEN_FILE": "/t"}):
        assert Target.find(env={"HEADRACE_MASTER": "127.0.0.1:9", **token}).where() == "127.0.0.1:9"
    assert Target.find(master="127.0.0.1:9", token="t", env={}).secret() == "t"
    assert Target.find(master="127.0.0.1:9", token_file="/t", env={}).token_file == "/t"
    for one in ({"HEADRACE_MASTER": "127.0.0.1:9"}, {"HEADRACE_TOKEN": "t"}):  # the state folder has the other one
        with pytest.raises(ValueError, match="not a job's name"):
            Target.find(env={**one, "HEADRACE_AGENT": "/run/a.sock"})


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("", ""),
        ("---\nmodel: shared\n", ""),
        ("job: 5\n", "5"),
        ("job : a\r\n", "a"),
        ("'job': 'a' # b\n", "a"),
        ('"job":   "a.b"\n', "a.b"),
        ("jobs: a\n job: b\n# job: c\n", ""),
    ],
)
def test_one_key_of_the_settings_file_is_read(tmp_path: Path, text: str, job: str) -> None:
    (tmp_path / "s").write_text(text, newline="")
    assert job_of_folder(str(tmp_path / "s")) == job


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: shared\njob: [a]\n", r"headrace.yaml:2: job: \[a\]: not a job's name"),
        ("job:\n  a\n", "headrace.yaml:1: job:: not a job's name"),
        ("job: a b\n", "not a job's name"),
        ("job: a#b\n", "not a job's name"),
        ("job: 'a\n", "not a job's name"),
        ("job: ../a\n", "not a job's name"),
        ("job: &x a\n", "set HEADRACE_JOB"),
        ("{job: a}\n", "lines of `name: value`"),
        ("--- {job: a}\n", "lines of `name: value`"),
        ("? job\n: a\n", "lines of `name: value`"),
        ("job: a\njob: b\n", "2 jobs, a and b"),
    ],
)
def test_no_job_is_guessed_from_what_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        resolve(env={})
