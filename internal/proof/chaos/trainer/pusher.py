"""Pushes the transactions of a folder, one after the other: python -m trainer.pusher FOLDER DATASET

Each is a file N.json that landing.go writes; what became of it is a line of the journal. The process
ends itself at the points that a transaction names, each once, so it dies between any two of its calls.
"""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

import headrace


class Pushing:
    def __init__(self, folder, dataset):
        self.folder, self.dataset = Path(folder), dataset
        self.lines = (self.folder / "journal").open("a")

    def write(self, **line):
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    def next(self):
        """The number of the first transaction that is not done."""
        lines = (self.folder / "journal").read_text().splitlines()
        return sum(1 for line in lines if "done" in json.loads(line))

    def run(self):
        n = self.next()
        while True:
            path = self.folder / f"{n}.json"
            while not path.exists():
                time.sleep(0.01)
            self.one(n, json.loads(path.read_text()))
            n += 1

    def one(self, n, job):
        def point(name):
            marker = self.folder / f"{n}.{name}"
            if name in job["die"] and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        values = [base64.b64decode(v) for v in job["values"]]
        key = job["key"].encode()
        with self.opened() as pusher:
            point("opened")
            landed = pusher.landed(job["id"])
            point("asked")
            if landed is not None:
                return self.write(n=n, done=landed.records, already=True)
            if job["stray"]:  # staged, and never committed
                stray = pusher.begin(job["id"] + "-stray")
                stray.push(job["stray"].encode(), key=key)
                stray.stage()
            t = pusher.begin(job["id"])
            for i, value in enumerate(values):
                if i == len(values) // 2:
                    point("half")
                t.push(value, key=key)
            point("pushed")
            locators = t.stage()
            point("staged")
            self.write(n=n, locators=locators)
            point("told")
            done = pusher.commit(job["id"], locators)
            point("committed")
            self.write(n=n, done=done.records, already=done.already)
            if job["again"]:
                again = pusher.commit(job["id"], locators)
                if not again.already or again.records != len(values):
                    self.write(n=n, wrong=f"a repeated commit was answered {again}")
                with pusher.begin(job["id"]) as t:
                    t.push(job["again"].encode(), key=key)

    def opened(self):
        while True:
            try:
                return headrace.Pusher(self.dataset)
            except headrace.DatasetError:
                time.sleep(0.05)  # the master has not been told the datasets yet


if __name__ == "__main__":
    Pushing(*sys.argv[1:]).run()
