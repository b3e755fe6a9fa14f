"""Records that make their trainer use more memory than there is, under `headrace run` with on_crash:
isolate. `headrace run`, with its master, its agent and its trainers, has a cgroup of its own with a
limit, as in a container. The kernel kills the trainer."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_crash import BAD, Job, all_but

# Limit of the cgroup. headrace and two trainers need less than half of it.
MIB = 512

TRAINER = """\
import os
import headrace

bad = {int(n) for n in os.environ["BAD"].split(",")}
seen = open(os.environ["SEEN"], "a")
with headrace.dataset("clicks").batches(64) as stream:
    for b in stream:
        n = b["n"].tolist()
        if bad & set(n):
            print(f"crash {len(n)}", file=seen, flush=True)
            taken = []
            while True:
                taken.append(b"x" * (8 << 20))
        print(*n, sep="\\n", file=seen, flush=True)
        stream.step()
"""


class MemoryGroup:
    """A cgroup with a limit of memory and without swap. Making it needs root."""

    def __init__(self, name: str, mib: int) -> None:
        if os.getuid() != 0:
            pytest.fail("this test makes a memory cgroup: run it as root", pytrace=False)
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        first = [Path(m[1]) for m in mounts if m[2] == "cgroup" and "memory" in m[3].split(",")]
        second = [Path(m[1]) for m in mounts if m[2] == "cgroup2"]
        self.version = 1 if first else 2
        if not first + second:
            pytest.fail("no memory cgroup is mounted (/sys/fs/cgroup)", pytrace=False)
        self.at = (first + second)[0] / name
        try:
            if self.version == 2:
                (self.at.parent / "cgroup.subtree_control").write_text("+memory")
            self.at.mkdir()
            limits = {
                1: {"memory.limit_in_bytes": mib << 20, "memory.memsw.limit_in_bytes": mib << 20},
                2: {"memory.max": mib << 20, "memory.swap.max": 0},
            }
            for file, value in limits[self.version].items():
                if (self.at / file).exists():  # a kernel without swap does not have the second file
                    (self.at / file).write_text(str(value))
        except OSError as e:
            pytest.fail(f"a memory cgroup cannot be made in {self.at.parent}: {e}", pytrace=False)

    def kills(self) -> int:
        """How many of its processes the kernel has killed for lack of memory."""
        text = (self.at / {1: "memory.oom_control", 2: "memory.events"}[self.version]).read_text()
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        assert found is not None, text
        return int(found[1])

    def within(self, command: list[str]) -> list[str]:
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.at / "cgroup.procs"), *command]

    def close(self) -> None:
        self.at.rmdir()


class LimitedJob(Job):
    def __init__(self, folder: Path, binary: str, group: MemoryGroup) -> None:
        super().__init__(folder, binary)
        (folder / "train.py").write_text(TRAINER)
        self.group = group

    def start(self, *args: str, program: list[str]) -> subprocess.CompletedProcess[str]:
        command = [self.binary, "run", "--model", "shared", "-f", "clicks.yaml", *args, "--", *program]
        return subprocess.run(
            self.group.within(command),
            env={**self.env, "BAD": ",".join(map(str, BAD))},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=1200,
        )


@pytest.fixture
def job(tmp_path: Path, binary: str) -> Iterator[LimitedJob]:
    group = MemoryGroup(f"headrace-test-{os.getpid()}", MIB)
    try:
        yield LimitedJob(tmp_path, binary, group)
    finally:
        group.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("trainers", "shell"), [(1, False), (1, True), (2, False)], ids=["one", "shell", "two"])
def test_a_record_that_takes_all_memory_is_left_out(job: LimitedJob, trainers: int, shell: bool) -> None:
    """The kernel kills the trainer, or the child of its shell, and nothing else of the cgroup. The
    record is then found like one that segfaults, and all others are trained once."""
    python = [sys.executable, str(job.folder / "train.py")]
    program = ["sh", "-c", '"$0" "$1"; exit $?', *python] if shell else python
    r = job.start("--max-restarts", "30", "--nproc-per-node", str(trainers), program=program)
    assert r.returncode == 0, r.stderr
    crashes, kills = job.crashes(), job.group.kills()
    print(f"{kills} kills for lack of memory, rows in hand: {crashes}")
    # The kernel caused each end, and `headrace run` says so each time.
    assert kills == len(crashes) == r.stderr.count("out of memory"), f"{kills} {crashes}" + r.stderr
    assert kills == r.stderr.count("restarting a worker"), r.stderr
    # More often if filling the memory takes longer than the agent waits at first (one second), or
    # if both trainers end together.
    assert crashes.count(1) >= 2 * len(BAD), crashes
    assert job.trained() == all_but(*BAD)
    letters = sorted(job.letters(), key=lambda k: str(k["offset"]))
    assert [(k["kind"], k["offset"]) for k in letters] == [
        ("crash", sum(len(f"{i}\tx{i}\n") for i in range(n))) for n in BAD
    ]
    assert collections.Counter(k["reason"] for k in letters) == {
        "its trainer died twice while it alone was in the batch": len(BAD)
    }
