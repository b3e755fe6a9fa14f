"""Files of a framework that no restore would accept are refused at the bind, not when somebody
needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import headrace
import numpy as np
import pytest
from agent import CALL, Agent
from headrace import _manifest as manifest
from saving import Agents, calls, stepped


@pytest.fixture
def agent(agents: Agents) -> Agent:
    return agents(model="replicated")


@pytest.fixture
def ck(agent: Agent, tmp_path: Path) -> Iterator[headrace.Checkpointer]:
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        stepped(stream, 2, np.zeros(1))
        yield ck


def refused(ck: headrace.Checkpointer, agent: Agent, path: Path, why: str) -> None:
    before = sorted(p.name for p in path.parent.rglob("*"))
    with pytest.raises(headrace.CheckpointError, match=why):
        ck.bind(ck.cut(), path)
    assert sorted(p.name for p in path.parent.rglob("*")) == before
    assert not agent.bound


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    dcp = tmp_path / "saved" / "dcp"
    dcp.mkdir(parents=True)
    (dcp / "shard.bin").write_bytes(b"weights")
    return dcp


def test_a_link_is_refused_by_name(ck: headrace.Checkpointer, agent: Agent, dcp: Path) -> None:
    elsewhere = dcp.parent / "blob"
    elsewhere.write_bytes(b"weights")
    (dcp / "linked.bin").symlink_to(elsewhere)
    refused(ck, agent, dcp, f"{dcp}/linked.bin is a link, to {elsewhere}: .* Bind what it leads to")
    refused(ck, agent, dcp / "linked.bin", f"{dcp}/linked.bin is a link")
    (dcp / "linked.bin").unlink()
    (dcp / "more").symlink_to(dcp.parent)
    refused(ck, agent, dcp, f"{dcp}/more is a link")
    (dcp / "more").unlink()
    bound = ck.bind(ck.cut(), dcp)
    assert manifest.verify(manifest.load(bound)) is None


def test_a_link_to_the_folder_itself_is_bound(ck: headrace.Checkpointer, dcp: Path) -> None:
    (dcp.parent / "latest").symlink_to(dcp)
    bound = ck.bind(ck.cut(), dcp.parent / "latest")
    assert manifest.verify(manifest.load(bound)) is None


@pytest.mark.parametrize("name", ["two\nlines", "back\\slash"])
def test_a_name_that_no_manifest_may_have_is_refused(
    ck: headrace.Checkpointer, agent: Agent, dcp: Path, name: str
) -> None:
    (dcp / name).write_bytes(b"x")
    refused(ck, agent, dcp, "are printable, without a backslash")
    refused(ck, agent, dcp / name, "are printable, without a backslash")


def test_a_file_with_a_name_of_ours_is_refused_and_not_left_out(
    ck: headrace.Checkpointer, agent: Agent, dcp: Path
) -> None:
    (dcp / "part-0.json").write_bytes(b"{}")
    refused(ck, agent, dcp, f"{dcp}/part-0.json: the name is one of Headrace's own")


def test_a_pipe_is_refused_and_not_waited_for(ck: headrace.Checkpointer, agent: Agent, dcp: Path) -> None:
    os.mkfifo(dcp / "pipe")
    refused(ck, agent, dcp, f"{dcp}/pipe is no file")


def test_a_folder_is_bound_again(ck: headrace.Checkpointer, agent: Agent, dcp: Path) -> None:
    cut = ck.cut()
    bound = ck.bind(cut, dcp)
    (dcp / f"{manifest.FILE_NAME}.pinned").touch()
    assert ck.bind(cut, dcp) == bound
    assert [f["path"] for f in manifest.load(bound).files] == ["shard.bin"]
    assert agent.bound == {cut.id: bound}


def test_a_step_that_was_not_reported_is_refused_at_once(ck: headrace.Checkpointer, agent: Agent, dcp: Path) -> None:
    with pytest.raises(ValueError, match="step 3, but the last step that this rank has reported is 2"):
        ck.bind(3, dcp)
    assert calls(agent) == []


def prefix(tmp_path: Path) -> list[Path]:
    """A checkpoint as TensorFlow writes it."""
    files = [tmp_path / name for name in ("model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001")]
    for file in files:
        file.write_bytes(file.name.encode())
    (tmp_path / "checkpoint").write_text("model_checkpoint_path: ...")
    return files


def test_the_files_of_a_prefix_are_one_checkpoint(ck: headrace.Checkpointer, agent: Agent, tmp_path: Path) -> None:
    files = prefix(tmp_path)
    with ck.exact() as cut:
        cut.path = tmp_path / "model.ckpt-7"
        assert cut.cut is None
        with pytest.raises(ValueError, match="there is no cut yet"):
            ck.bind(cut, files=files)
    bound = ck.bind(cut, files=files)
    assert bound == str(tmp_path / "model.ckpt-7.headrace-manifest.json")
    told = {c["call"]: c["path"] for c in agent.of(CALL)}
    assert told == {"ask": bound, "bind": bound}  # the cut is not carried: only the manifest has it
    found = manifest.load(bound)
    assert [file["path"] for file in found.files] == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    assert manifest.verify(found) is None
    files[0].write_bytes(b"another")
    assert "model.ckpt-7.index" in str(manifest.verify(found))


def test_files_that_are_no_checkpoint_of_a_prefix_are_refused_by_name(
    ck: headrace.Checkpointer, agent: Agent, tmp_path: Path
) -> None:
    files = prefix(tmp_path)
    elsewhere = tmp_path / "saved" / "more.index"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"x")
    cut = ck.cut()
    with pytest.raises(headrace.CheckpointError, match="files= names no file"):
        ck.bind(cut, tmp_path / "model.ckpt-7", files=[])
    with pytest.raises(headrace.CheckpointError, match=r"more.index does not lie in .*: bind files of one folder"):
        ck.bind(cut, tmp_path / "model.ckpt-7", files=[*files, elsewhere])
    with pytest.raises(ValueError, match="only in a shared model they differ"):
        ck.bind(cut, tmp_path / "model.ckpt-7", files=files, step=1480)
    with pytest.raises(ValueError, match="needs the path"):
        ck.bind(cut, files=files)
    assert not agent.bound


def test_a_block_that_raises_leaves_no_cut(ck: headrace.Checkpointer, agent: Agent) -> None:
    with pytest.raises(OSError, match="disk"), ck.exact() as cut:
        raise OSError("disk")
    assert cut.cut is None
    assert "ask" not in calls(agent)
