"""A parameter server that has each record in its model once, whatever is killed.

One process owns the model and keeps it in a file (SQLite). An update comes with a claim:
the records that it was computed from. In one transaction the server writes the new weights
and the set of all records that are in them; then it answers. So after a kill at any
instant the file has both or neither, and an update that comes again is refused.

    python server.py --model model.db --socket server.sock

A request is a JSON object in one line. A `gradient` is the sum over the claim's rows of the
derivatives for the two weights. `ids` are the ids of the rows. The model has an entry for each
id: how often it was learned.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import socketserver
import sqlite3
import threading
from typing import Any

from headrace import Applied, Claim

RATE = 0.01


class Model:
    """Weights, entries, and the set of records that they contain, in one file."""

    def __init__(self, path: str) -> None:
        self.lock = threading.Lock()
        self.owner = open(f"{path}.lock", "w")  # noqa: SIM115  # held until this process ends
        fcntl.flock(self.owner, fcntl.LOCK_EX)  # waits until an earlier server has ended
        self.file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.file.execute("PRAGMA synchronous = FULL")
        with self.file:
            self.file.execute("CREATE TABLE IF NOT EXISTS model (weights TEXT, applied TEXT, refused INTEGER)")
            self.file.execute("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, learned INTEGER)")
        row = self.file.execute("SELECT weights, applied FROM model").fetchone()
        if row is None:
            self.file.execute("INSERT INTO model VALUES ('[0.0, 0.0]', '[]', 0)")
            row = ("[0.0, 0.0]", "[]")
        self.weights: list[float] = json.loads(row[0])
        self.applied = Applied(json.loads(row[1]))

    def update(self, claim: Claim, gradient: list[float], ids: list[int]) -> Claim:
        """Returns the part of the claim that is not in the model, if only a part is: the update has to be
        made of that part alone. If the update was applied, nothing is missing."""
        with self.lock:
            missing = self.applied.missing(claim)
            if missing != claim:
                self.file.execute("UPDATE model SET refused = refused + 1")
                return missing
            self.applied.add(claim)
            self.weights = [w - RATE * g / max(1, len(ids)) for w, g in zip(self.weights, gradient)]
            self.store(ids)
            return Claim(claim.dataset, [])

    def store(self, ids: list[int]) -> None:
        """One transaction. If it fails, memory is ahead of the file, so the process ends. The next
        one begins with the file."""
        try:
            self.file.execute("BEGIN IMMEDIATE")
            self.file.execute(
                "UPDATE model SET weights = ?, applied = ?",
                (json.dumps(self.weights), json.dumps(self.applied.data())),
            )
            self.file.executemany(
                "INSERT INTO entries VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET learned = learned + 1",
                [(i,) for i in ids],
            )
            self.file.execute("COMMIT")
        except sqlite3.Error as error:
            print(f"the model cannot be stored: {error}", flush=True)
            os._exit(1)


class Handler(socketserver.StreamRequestHandler):
    """The connection of one trainer."""

    def handle(self) -> None:
        model: Model = self.server.model  # type: ignore[attr-defined]
        for line in self.rfile:
            if not line.endswith(b"\n"):
                return  # its trainer was killed while it wrote
            request: dict[str, Any] = json.loads(line)
            missing = None
            if "claim" in request:
                missing = model.update(Claim.from_data(request["claim"]), request["gradient"], request["ids"]).data()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(json.dumps({"missing": missing, "weights": model.weights}).encode() + b"\n")


def serve(args: argparse.Namespace) -> None:
    model = Model(args.model)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(args.socket)
    with socketserver.ThreadingUnixStreamServer(args.socket, Handler) as server:
        server.daemon_threads = True
        server.model = model  # type: ignore[attr-defined]
        print(f"serves {args.model} with {sum(1 for _ in model.applied.data())} segments", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="model.db", help="file of the model")
    parser.add_argument("--socket", default="server.sock", help="socket on which it listens for trainers")
    serve(parser.parse_args())
