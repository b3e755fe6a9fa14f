"""Makes a click log of ROWS lines in FOLDER: python make_log.py 200000 data"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

FILES = 4


def lines(first: int, last: int, step: int = 1) -> Iterator[str]:
    """Lines of the records first, first + step, ... below last. Line i is always the same."""
    for i in range(first, last, step):
        rng = random.Random(i)
        user, ad = rng.randrange(1000), rng.randrange(500)
        seen = ",".join(str(rng.randrange(500)) for _ in range(rng.randrange(5)))
        label = int((user * 7 + ad * 13) % 10 < 3)
        yield f"{i}\t{label}\t{rng.random():.3f}\t{rng.random():.3f}\t{rng.random():.3f}\tu{user}\t{ad}\t{seen}\n"


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for f in range(FILES):
        (folder / f"part-{f}.tsv").write_text("".join(lines(f, rows, FILES)))


if __name__ == "__main__":
    main()
