"""What a newcomer writes by mistake gets an error that says what was meant."""

from __future__ import annotations

import concurrent.futures
import pickle
import re
import socket
from pathlib import Path

import headrace
import numpy as np
import pytest
from headrace import _settings
from headrace._master import Master, Target
from saving import Agents


def test_rows_that_are_no_number_are_named(agents: Agents) -> None:
    agents()
    with pytest.raises(TypeError, match=r"rows='1024'; it is a whole number, as in batches\(1024\)"):
        headrace.dataset("clicks").batches("1024")  # type: ignore[arg-type]


def test_a_batch_given_to_step_is_told_what_a_step_is(agents: Agents) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        batch = next(stream)
        with pytest.raises(TypeError, match=r"it is a whole number, as in stream\.step\(\).*batch\.done\(\) steps one"):
            stream.step(batch)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"batches='2'; it is a whole number, as in stream\.step\(batches=2\)"):
            stream.step(batches="2")  # type: ignore[arg-type]
        assert stream.unstepped == 1
        stream.step()


def test_a_loop_over_a_dataset_names_batches() -> None:
    with pytest.raises(TypeError, match=r"for b in headrace\.dataset\(.clicks.\)\.batches\(1024\)"):
        for _ in headrace.dataset("clicks"):
            pass


@pytest.mark.parametrize(
    ("name", "meant"),
    [("MODLE", "MODEL"), ("RNAK", "RANK"), ("WORLDSIZE", "WORLD_SIZE"), ("AGNET", "AGENT"), ("SOCKET", "AGENT")],
)
def test_a_misspelt_variable_names_the_right_one(name: str, meant: str) -> None:
    said = rf"HEADRACE_{name} is no variable of Headrace: did you mean HEADRACE_{meant}\?"
    with pytest.raises(ValueError, match=said):
        _settings.resolve(env={f"HEADRACE_{name}": "1"})


@pytest.mark.parametrize("name", ["P", "KAFKA_PASSWORD", "LOCAL_WORLD_SIZE", "MASTER_PORT", "SERVICE_HOST", "MY_TEST"])
def test_variables_that_are_not_ours_are_left_alone(name: str) -> None:
    _settings.resolve(env={f"HEADRACE_{name}": "1"})


def test_each_setting_of_the_command_is_a_known_variable() -> None:
    settings = (Path(__file__).parents[3] / "internal" / "config" / "settings.go").read_text()
    names = set(re.findall(r'\{key: "(\w+)"', settings)) - {"socket"}
    assert len(names) > 15
    assert {n.upper() for n in names} - set(_settings._KNOWN) == set()


def test_without_an_agent_the_agents_of_other_jobs_are_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    (Path(folder) / "headrace").mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{folder}/headrace/ctr.sock")
        with pytest.raises(headrace.AgentUnavailable, match=r"sockets here: ctr; .*set HEADRACE_JOB=ctr"):
            headrace.init()
        with pytest.raises(headrace.AgentUnavailable, match=r"headrace up --job crt.*set HEADRACE_JOB=ctr"):
            headrace.init(job="crt")


def test_objects_show_what_they_are(agents: Agents) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream:
        next(stream)
        assert repr(stream) == "Stream('clicks', 10 rows a batch, rank 0: 1 batches yielded, 1 unstepped)"
        stream.step()
        assert repr(headrace.init()) == "Trainer(job 'demo', model private, rank 0 of 1)"
    assert repr(stream) == "Stream('clicks', 10 rows a batch, closed: 1 batches yielded, 0 unstepped)"
    assert repr(headrace.dataset("clicks")) == "Dataset('clicks')"


def test_a_checkpointer_shows_its_folder_and_its_last_save(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        assert repr(ck) == f"Checkpointer('{tmp_path}', rank 0: no save yet)"
        next(stream)
        saved = ck.save(stream.step(), {"w": np.zeros(1)})
        saved.wait(300)
        assert repr(ck) == f"Checkpointer('{tmp_path}', rank 0: last {saved!r})"


def test_a_pusher_shows_its_dataset_and_its_master_and_no_token() -> None:
    target = Target.find(master="127.0.0.1:9", token="secret", env={})
    pusher = headrace.Pusher.__new__(headrace.Pusher)
    pusher.dataset, pusher._master = "clicks", Master(target)
    assert repr(pusher) == "Pusher('clicks', master 127.0.0.1:9)"
    assert "secret" not in repr(target)


def test_typed_columns_are_what_they_say(agents: Agents) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        b = next(stream)
        stream.step()
    assert b.array("id") is b["id"]
    assert isinstance(b.array("dense"), np.ndarray)
    assert isinstance(b.ragged("tags"), headrace.Ragged)
    assert isinstance(b.text("text"), headrace.Bytes)
    with pytest.raises(TypeError, match=r"column 'tags' is not an array: batch\['tags'\] gives the Ragged"):
        b.array("tags")
    with pytest.raises(KeyError, match="the batch has the columns id, dense, tags, text"):
        b.text("txt")


def test_a_checkpointer_without_its_folder_or_its_stream_says_what_comes_where(agents: Agents, tmp_path: Path) -> None:
    agents()
    says = r"the folder comes first and then a stream, as in Checkpointer\(\"checkpoints\", headrace\.dataset"
    with pytest.raises(TypeError, match=r"Checkpointer\('ck', 's'\): " + says):
        headrace.Checkpointer("ck", "s")  # type: ignore[arg-type]
    with headrace.dataset("clicks").batches(10) as stream:
        with pytest.raises(TypeError, match=says):
            headrace.Checkpointer(stream)  # type: ignore[arg-type]

        class Loader:
            def __init__(self, stream: headrace.Stream) -> None:
                self.stream = stream

        with pytest.raises(TypeError, match=r"a Loader's stream is loader\.stream"):
            headrace.Checkpointer(tmp_path, Loader(stream))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_wait", "max_unanswered"])
def test_a_time_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}='2'; it is seconds, as in {name}=2\.0"):
        headrace.dataset("clicks").batches(10, **{name: "2"})  # type: ignore[arg-type]


def test_next_of_a_dataset_names_batches() -> None:
    with pytest.raises(
        TypeError, match=r"stream = headrace\.dataset\('clicks'\)\.batches\(1024\), then next\(stream\)"
    ):
        next(headrace.dataset("clicks"))


def test_a_method_that_a_dataset_does_not_have_names_the_one_that_was_meant() -> None:
    d = headrace.dataset("clicks")
    with pytest.raises(AttributeError, match=r"has no 'batch': did you mean batches\?"):
        d.batch(10)
    with pytest.raises(AttributeError, match=r"has no 'step': did you mean steps\?"):
        d.step(1)
    with pytest.raises(AttributeError, match=r"has no 'xyz'$"):
        d.xyz()
    assert pickle.loads(pickle.dumps(d)).name == "clicks"


def test_two_threads_that_ask_at_the_same_time_are_told_that_one_may(agents: Agents) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        with stream._feed.asking, concurrent.futures.ThreadPoolExecutor(1) as other:  # as if this thread were in next()
            with pytest.raises(headrace.HeadraceError, match="one thread at a time may"):
                other.submit(next, stream).result(300)
        with concurrent.futures.ThreadPoolExecutor(1) as other:  # allowed: one after the other
            assert len(other.submit(next, stream).result(300)) == 10
        stream.step()
