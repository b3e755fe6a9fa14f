"""A trainer of a model in a parameter server (server.py).

    headrace run --nproc-per-node 3 -f numbers.yaml -- python train.py --server server.sock

Each update carries a claim of its batch. If a trainer is killed between the update and
step(), it or another trainer gets the batch again, perhaps together with other rows.
The server answers which part of the claim it lacks. Only that part is learned.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from typing import Any

import headrace
import numpy as np


class Server:
    """The client of the parameter server, which may be killed and come back."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: Any = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends the request until it is answered. The claim makes that safe: if an update has
        arrived and its answer was lost, the server refuses the second one."""
        line = json.dumps(request).encode() + b"\n"
        while True:
            try:
                if self.file is None:
                    s = socket.socket(socket.AF_UNIX)
                    s.connect(self.path)
                    self.file = s.makefile("rwb")
                    s.close()  # the file keeps it open
                self.file.write(line)
                self.file.flush()
                answer = self.file.readline()
                if answer.endswith(b"\n"):
                    reply: dict[str, Any] = json.loads(answer)
                    return reply
            except OSError:
                pass
            self.file = None
            time.sleep(0.05)


def train(args: argparse.Namespace) -> None:
    server = Server(args.server)
    weights = np.array(server.ask({})["weights"])
    with headrace.dataset("numbers").batches(args.rows) as stream:
        for batch in stream:
            claim = stream.claim(batch)
            while claim:
                x, y, ids = (batch.array(name)[claim.rows] for name in ("x", "y", "id"))
                error = weights[0] + weights[1] * x - y
                gradient = [float(error.sum()), float((error * x).sum())]
                reply = server.ask({"claim": claim.data(), "gradient": gradient, "ids": ids.tolist()})
                weights = np.array(reply["weights"])
                claim = claim.part(headrace.Claim.from_data(reply["missing"]))
            stream.step()  # after the server's answer: the batch is in the model
            time.sleep(args.pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="server.sock", help="socket of server.py")
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    train(parser.parse_args())
