"""Makes ROWS short token sequences in FOLDER: python make_texts.py 20000 data"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

FILES, WORDS = 4, 256


def line(i: int) -> str:
    """Row i is always the same: a walk through the words that begins at a word given by i."""
    rng = random.Random(i)
    tokens = [rng.randrange(WORDS)]
    for _ in range(rng.randrange(3, 24)):
        tokens.append((tokens[-1] * 3 + rng.randrange(4)) % WORDS)
    return json.dumps({"id": i, "tokens": tokens}) + "\n"


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for f in range(FILES):
        (folder / f"part-{f}.jsonl").write_text("".join(line(i) for i in range(f, rows, FILES)))


if __name__ == "__main__":
    main()
