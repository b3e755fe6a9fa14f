"""Files of delimited Protobuf messages that Python's protobuf package wrote. What a trainer gets,
through a kill of master and agent, is compared with what was written."""

from __future__ import annotations

import gzip
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import headrace, json, os

with headrace.dataset("clicks").batches(100) as stream, open(os.environ["ROWS"], "a") as out:
    for b in stream:
        assert b["vector"].shape == (len(b), 3)
        for row in zip(b["id"].tolist(), b["word"].tolist(), b["vector"].tolist()):
            print(json.dumps(row), file=out)
        out.flush()
        stream.step()
"""


def example(job: Any) -> str:
    page = (Path(__file__).parents[4] / "docs" / "FILES.md").read_text()
    (text,) = (e for e in re.findall(r"```yaml\n(.*?)```", page, re.S) if "format: protobuf" in e)
    text = text.replace("root: data", f"root: {job.data}").replace('"*.pb"', '"*"')
    return str(text) + "lease: {initial: 4KiB, min: 4KiB, max: 4KiB}\n"


@pytest.fixture
def click(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the page's message, made by Protobuf's own compiler."""
    from grpc_tools import protoc

    lines = re.search(r"inline: \|\n((?:      .*\n)+)", example(job))
    assert lines is not None
    (job.folder / "click_of_page.proto").write_text(lines[1])
    assert protoc.main(["protoc", f"-I{job.folder}", f"--python_out={job.folder}", "click_of_page.proto"]) == 0
    monkeypatch.syspath_prepend(str(job.folder))
    sys.modules.pop("click_of_page_pb2", None)
    import click_of_page_pb2  # type: ignore[import-not-found]

    return click_of_page_pb2.Click


def delimited(click: Any, first: int, last: int) -> bytes:
    from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]

    out = io.BytesIO()
    for i in range(first, last):
        text = click(id=i, word=f"w{i % 9}", vector=[i / 4, 1, -2]).SerializeToString()
        out.write(_VarintBytes(len(text)) + text)
    return out.getvalue()


def test_delimited_messages_are_read_once_through_a_kill(job: Any, click: Any) -> None:
    import headrace

    (job.data / "a.pb").write_bytes(delimited(click, 0, 2000))
    (job.data / "b.pb.gz").write_bytes(gzip.compress(delimited(click, 2000, 4000)))
    spec = job.folder / "clicks.yaml"
    spec.write_text(example(job))
    rows, said = job.rows_through_a_kill(spec, TRAIN)
    assert rows == [[i, int(headrace.hash64(f"w{i % 9}", "", 1000)), [i / 4, 1, -2]] for i in range(4000)], said


def test_a_file_that_was_cut_short_is_named(job: Any, click: Any) -> None:
    (job.data / "a.pb").write_bytes(delimited(click, 0, 100)[:-3])
    spec = job.folder / "clicks.yaml"
    spec.write_text(example(job))
    out = job.headrace("check", "-f", str(spec), check=False)
    assert "a.pb" in out.stderr
    assert "goes on after the end of the file" in out.stderr, out.stderr
