"""Claims: a server that keeps the set of what is in its model has each record once."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import numpy as np
import pytest
from frames import aligned, frame, span
from headrace import Applied, Claim, Take
from headrace._batch import Batch
from headrace._claim import claim
from headrace._frame import Names, parse

FILE = ("files:clicks", 0, "day_3.tsv")
TOKEN = (1, 2, 40)


def batch(*runs: tuple[int, list[int], int], rows: int | None = None) -> list[Batch]:
    """Batches of one frame. runs: segment, offsets at which its records begin, offset at which it ends."""
    offsets = [o for _, begins, _ in runs for o in begins]
    spans = [
        span(len(b), b[0], end, segment=s, pass_=0, lease_from=b[0] + 9000, lease_to=end + 9000) for s, b, end in runs
    ]
    names = {"partitions": {"7": "files:clicks"}, "segments": {f"7/{s}": f"day_{s}.tsv" for s, _, _ in runs}}
    per = rows or len(offsets)
    payload = frame([np.array(offsets, np.int64)], spans, rows=len(offsets), per_batch=per, names=names)
    f = parse(aligned(payload), (), Names())
    return [Batch(f, i, min(i + per, f.rows), None, 1 + i // per) for i in range(0, f.rows, per)]


def takes(c: Claim) -> list[tuple[str, int, int]]:
    return [(t.segment, t.start, t.end) for t in c.takes]


def test_a_claim_names_the_records_as_the_source_does_with_the_lease_they_came_under() -> None:
    first, second = batch((3, [0, 10, 25], 40), (4, [100, 107], 120), rows=4)
    c = claim("clicks", first)
    assert c.takes == (Take(*FILE, 0, 40, TOKEN), Take("files:clicks", 0, "day_4.tsv", 100, 107, TOKEN))
    assert takes(claim("clicks", second)) == [("day_4.tsv", 107, 120)]
    assert c.rows.tolist() == [0, 1, 2, 3]
    assert takes(claim("clicks", first.slice(1, 3))) == [("day_3.tsv", 10, 40)]
    assert claim("clicks", first.slice(1, 3)).rows.tolist() == [0, 1]
    assert Claim.from_data(json.loads(json.dumps(c.data()))) == c


def test_of_a_batch_with_known_and_new_rows_only_the_new_rows_are_claimed() -> None:
    applied = Applied()
    [b] = batch((3, [10, 25], 40))
    applied.add(claim("clicks", b))
    [again] = batch((3, [0, 10, 25, 40, 55], 60))
    c = claim("clicks", again)
    missing = Claim.from_data(applied.missing(c).data())
    assert takes(missing) == [("day_3.tsv", 0, 10), ("day_3.tsv", 40, 60)]
    part = c.part(missing)
    assert part.rows.tolist() == [0, 3, 4]
    with pytest.raises(ValueError, match="in the model already"):
        applied.add(c)
    assert applied.data() == [["clicks", *FILE, [[10, 40]]]]
    applied.add(part)
    assert applied.data() == [["clicks", *FILE, [[0, 60]]]]
    assert not c.part(applied.missing(c))


def test_another_pass_another_dataset_and_another_partition_are_other_records() -> None:
    applied = Applied()
    applied.add(Claim("clicks", [Take(*FILE, 0, 40, TOKEN)]))
    for dataset, place in (
        ("clicks", ("files:clicks", 1, "day_3.tsv")),
        ("views", FILE),
        ("clicks", ("files:views", 0, "day_3.tsv")),
        ("clicks", ("files:clicks", 0, "day_4.tsv")),
    ):
        c = Claim(dataset, [Take(*place, 0, 40, TOKEN)])
        assert applied.missing(c) == c
    applied.forget("clicks")
    assert len(applied) == 0


def test_a_claim_that_names_a_record_twice_is_refused() -> None:
    applied = Applied()
    with pytest.raises(ValueError, match="in the model already"):
        applied.add(Claim("clicks", [Take(*FILE, 0, 40, TOKEN), Take(*FILE, 39, 50, TOKEN)]))
    assert len(applied) == 0


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"dataset": 3, "takes": []},
        {"dataset": "clicks", "takes": [["files:clicks", 0, "day_3.tsv", 40, 40, 1, 2, 3]]},
        {"dataset": "clicks", "takes": [["files:clicks", 0, "day_3.tsv", 0, 40]]},
        {"dataset": "clicks", "takes": [["files:clicks", 0, "day_3.tsv", "0", 40, 1, 2, 3]]},
        {"dataset": "clicks", "takes": [[7, 0, "day_3.tsv", 0, 40, 1, 2, 3]]},
    ],
)
def test_data_that_is_not_a_claim_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="no claim"):
        Claim.from_data(data)


def test_whatever_comes_again_in_whatever_batches_each_record_is_in_the_model_once() -> None:
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    rng = random.Random(seed)
    for _ in range(15):
        begins = sorted(rng.sample(range(400), 80))
        model: dict[tuple[int, int], int] = {}
        applied = Applied()
        for _ in range(80):
            runs = []
            for segment in rng.sample((3, 4), rng.randint(1, 2)):
                a = rng.randrange(80)
                b = rng.randint(a + 1, min(80, a + 12))
                end = begins[b] if b < 80 else 400
                runs.append((segment, begins[a:b], rng.randint(begins[b - 1] + 1, end)))
            for got in batch(*runs, rows=rng.randint(1, 20)):
                c = claim("clicks", got)
                if rng.random() < 0.3:  # a server that starts again
                    applied = Applied(json.loads(json.dumps(applied.data())))
                missing = applied.missing(Claim.from_data(c.data()))
                part = c.part(missing)
                assert bool(part) == bool(missing)
                if part:
                    applied.add(Claim.from_data(part.data()))
                where = [(r.segment, o) for r in got.ranges for o in begins if r.start <= o < r.end]
                for row in part.rows.tolist():
                    model[where[row]] = model.get(where[row], 0) + 1
                assert all(key in model for key in where), "a record was refused, but it is not in the model"
        assert set(model.values()) == {1}
        assert len(applied) <= 2 * 80
