"""Learns which user clicks on which ad, while the rows come: python train.py [JOURNAL]

It writes the ids of the rows that are in the model into JOURNAL, one line for each step."""

import sys

import headrace
import numpy as np

weights = np.zeros((2, 4096), np.float32)
rows = steps = 0
loss = 0.0
with headrace.dataset("clicks").batches(512, max_wait=0.5) as stream:
    for b in stream:
        user, ad, clicked = b["user"], b["ad"], b["clicked"]
        guess = 1 / (1 + np.exp(-(weights[0, user] + weights[1, ad])))
        np.subtract.at(weights[0], user, 0.05 * (guess - clicked))
        np.subtract.at(weights[1], ad, 0.05 * (guess - clicked))
        stream.step()
        if len(sys.argv) > 1:
            with open(sys.argv[1], "a") as journal:
                print(*b["id"].tolist(), file=journal)
        rows, steps = rows + len(clicked), steps + 1
        likely = np.where(clicked > 0.5, guess, 1 - guess)
        loss = 0.95 * loss + 0.05 * float(-np.log(np.maximum(likely, 1e-6)).mean())
        if steps % 20 == 0:
            print(f"rows {rows:,}  loss {loss:.3f}", flush=True)
print(f"rows {rows:,}  the end", flush=True)
