"""Learns which user clicks on which ad, while Flink joins: python train.py JOURNAL

The journal gets a line for each step: the impressions of its batch, and whether they were clicked on."""

import sys

import headrace
import numpy as np

weights = np.zeros((2, 4096), np.float32)
rows = 0
with open(sys.argv[1], "a") as journal, headrace.dataset("clicks").batches(512, max_wait=0.5) as stream:
    for b in stream:
        user, ad, clicked = b["user"], b["ad"], b["clicked"]
        guess = 1 / (1 + np.exp(-(weights[0, user] + weights[1, ad])))
        np.subtract.at(weights[0], user, 0.05 * (guess - clicked))
        np.subtract.at(weights[1], ad, 0.05 * (guess - clicked))
        stream.step()
        print(*(f"{i}:{c:.0f}" for i, c in zip(b["impression"].tolist(), clicked.tolist())), file=journal, flush=True)
        rows += len(clicked)
        likely = np.where(clicked > 0.5, guess, 1 - guess)
        print(f"rows {rows:,}  loss {float(-np.log(np.maximum(likely, 1e-6)).mean()):.3f}", flush=True)
print(f"rows {rows:,}  the end", flush=True)
