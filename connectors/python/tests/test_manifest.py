"""The manifest's format against the vectors that every implementation passes."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from headrace import _cut, _publish
from headrace import _manifest as manifest

VECTORS = Path(__file__).parents[3] / "api" / "vectors" / "manifest"
INDEX: list[dict[str, Any]] = json.loads((VECTORS / "index.json").read_text())
GOOD = [v for v in INDEX if v["ok"]]
INSIDE = [v for v in INDEX if v.get("field", "").startswith(("cut.datasets", "ranges"))]
BAD = [v for v in INDEX if not v["ok"] and v not in INSIDE]


@pytest.mark.parametrize("vector", GOOD, ids=lambda v: v["file"])
def test_good_manifests_are_read_and_written_the_same(vector: dict[str, Any]) -> None:
    path = VECTORS / vector["file"]
    read = manifest.load(str(path))
    assert (read.step, read.epoch, read.cut_id) == (vector["step"], vector["epoch"], vector["cut"])
    assert read.rank == vector.get("rank")
    assert read.needs == vector.get("needs", [])
    assert read.cut.get("order", 0) == vector.get("order", 0)
    assert read.cut.get("exact", False) is vector.get("exact", False)
    assert sum(f["size"] for f in read.files) == vector.get("bytes", 0)
    fields = dict(read.fields)
    del fields["crc64nvme"]
    # Every number and text comes back as it was: sealing the fields again gives the same manifest.
    assert json.loads(_publish.seal(fields)) | {"crc64nvme": ""} == read.fields | {"crc64nvme": ""}


@pytest.mark.parametrize("vector", GOOD, ids=lambda v: v["file"])
def test_the_cuts_of_good_manifests_are_right(vector: dict[str, Any]) -> None:
    assert _cut.wrong_inside(manifest.load(str(VECTORS / vector["file"])).cut) is None


@pytest.mark.parametrize("vector", INSIDE, ids=lambda v: v["file"])
def test_cuts_that_cannot_be_do_not_verify_and_the_field_is_named(vector: dict[str, Any]) -> None:
    wrong = manifest.verify(manifest.load(str(VECTORS / vector["file"])))
    assert wrong is not None
    assert vector["file"] in wrong
    assert vector["field"].removeprefix("cut.") + ":" in wrong


@pytest.mark.parametrize("vector", BAD, ids=lambda v: v["file"])
def test_bad_manifests_do_not_count(vector: dict[str, Any]) -> None:
    kind = manifest.Newer if vector["kind"] == "newer" else manifest.Damaged
    with pytest.raises(kind, match=vector["file"]) as caught:
        manifest.load(str(VECTORS / vector["file"]))
    if isinstance(caught.value, manifest.Newer):
        assert caught.value.needs == vector.get("needs", [])


@pytest.mark.parametrize("vector", INSIDE, ids=lambda v: v["file"])
def test_the_content_of_a_cut_is_left_to_the_master(vector: dict[str, Any]) -> None:
    assert manifest.load(str(VECTORS / vector["file"])).cut["datasets"]


def test_crc64nvme() -> None:
    for vector in json.loads((VECTORS / "crc64nvme.json").read_text()):
        data = base64.b64decode(vector["base64"])
        assert f"{manifest.crc64(data):016x}" == vector["crc64nvme"], vector["about"]
        assert manifest.crc64(data[3:], manifest.crc64(data[:3])) == manifest.crc64(data)


def test_no_change_of_a_manifests_bytes_goes_unseen(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / manifest.FILE_NAME
    for n in range(400):
        data = bytearray((VECTORS / rng.choice(GOOD)["file"]).read_bytes())
        before = bytes(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            change = rng.randrange(4)
            if change == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif change == 1:
                del data[at : at + rng.randint(1, 40)]
            elif change == 2:
                data[at:at] = rng.choice([b"[" * 5000, b"\x00", b'"', b"{}", before[:at]])
            else:
                del data[at:]
            if not data:
                break
        path.write_bytes(data)
        if bytes(data) != before:
            with pytest.raises((manifest.Damaged, manifest.Newer)):
                manifest.load(str(path))
                pytest.fail(f"change {n} of the manifest went unseen: {bytes(data)!r}")


def test_nesting_without_end_is_damage(tmp_path: Path) -> None:
    path = tmp_path / manifest.FILE_NAME
    path.write_bytes(b'{"a":' * 200_000)
    with pytest.raises(manifest.Damaged):
        manifest.load(str(path))
    assert manifest.find(str(tmp_path)) == []
