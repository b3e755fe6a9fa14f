"""The examples of docs/LANDING.md, unchanged: shell, curl, Python, Go."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "LANDING.md").read_text()
# tests_ray runs the example for Ray.
PROGRAMS = [p for p in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "headrace.ray" not in p]
SPECS = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
SHELL = re.findall(r"(?:^ {4}\S.*\n(?: {5,}\S.*\n)*)+", PAGE, re.M)
GO = re.findall(r"```go\n(.*?)```", PAGE, re.S)

# Only the connection to the master is ours. The rest is the page's program.
PROGRAM = """
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/headrace/headrace/connectors/go/push"
	"github.com/headrace/headrace/internal/link"
)

func main() {
	ctx, line := context.Background(), []byte(`{"user": 1, "label": 1}`)
	conn, err := link.Dial(link.Target{State: os.Args[1]}, link.TLS{})
	if err != nil {
		panic(err)
	}
	{
%s
		fmt.Println(done.Already, done.Records, landed, err)
	}
}
"""

READ = """
import headrace
rows = 0
with headrace.dataset("clicks").batches(100, max_wait=0.05) as stream:
    for b in stream:
        rows += len(b["user"])
        stream.step()
        if rows == 10_003:
            break
print("rows", rows)
"""


def test_the_programs_push_each_record_once(job: Any) -> None:
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPECS[0])
    job.up("-f", str(spec))
    assert len(PROGRAMS) == 2
    for again in ("False", "True"):
        assert job.helper(PROGRAMS[0]).ended() == f"10000 {again}\n"
        assert job.helper(PROGRAMS[1]).ended() == ""
    assert "rows 10003\n" in job.helper(READ).ended()


class Shell:
    """A shell in the job's folder. Tests type lines into it."""

    def __init__(self, job: Any) -> None:
        tools = job.folder / "bin"
        tools.mkdir()
        (tools / "headrace").symlink_to(job.binary)
        job.env["PATH"] = f"{tools}:{os.environ['PATH']}"
        self.job, self.log = job, job.folder / "shell.log"
        # Everything that the shell starts inherits the other end of this pipe. It closes when all have ended.
        self.alive, inherited = os.pipe()
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                ["bash"], env=job.env, cwd=job.folder, stdin=subprocess.PIPE, stdout=out, stderr=out,
                start_new_session=True, pass_fds=[inherited],
            )  # fmt: skip
        os.close(inherited)

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def says(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + 120
        while not (found := re.search(pattern, self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        return found

    def run(self, text: str) -> str:
        """Runs the lines one after the other. Each must succeed. Returns what they print."""
        out = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text], env=self.job.env, cwd=self.job.folder,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert out.returncode == 0, out.stderr + self.log.read_text()
        return out.stdout

    def visible(self) -> int:
        status = json.loads(self.run("headrace dataset status clicks -o json"))
        listed: int = status["counts"]["listed"]
        return listed

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate(timeout=300)
        assert select.select([self.alive], [], [], 120)[0], "a process that the shell has started is still running"
        os.close(self.alive)


@pytest.fixture
def shell(job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    (job.folder / "clicks.yaml").write_text(SPECS[0])
    (job.folder / "app.log").write_text('{"user": 1, "label": 1}\n')
    rows = [json.dumps({"user": i % 1000, "label": i % 2}) + "\n" for i in range(100_001)]
    (job.folder / "rows.jsonl").write_text("".join(rows))
    shell = Shell(job)
    try:
        yield shell
    finally:
        shell.end()


def block(word: str) -> list[str]:
    """The lines of the page's only block that contains the word."""
    (found,) = (b for b in SHELL if word in b)
    return [line + "\n" for line in found.splitlines()]


def test_the_lines_push_each_record_once_and_show_them(job: Any, shell: Shell) -> None:
    up, lines, named, parts, tail = block("headrace up -f clicks.yaml")
    shell.type(up)
    shell.says(re.search(r'when it says "(.*)"', up)[1])  # type: ignore[index]
    shell.run(lines)
    for again in range(2):
        assert (", 1 were visible already" in shell.run(named)) == bool(again)
        assert (", 2 were visible already" in shell.run(parts)) == bool(again)
    assert shell.visible() == 3 * 100_001
    with headrace.Pusher("clicks") as pusher:
        assert pusher.landed("big/0") == headrace.Pushed("big/0", True, 100_000)
        assert pusher.landed("big/1") == headrace.Pushed("big/1", True, 1)
    shell.type(tail)
    for more in (1, 2):
        deadline = time.monotonic() + 120
        while shell.visible() < 3 * 100_001 + more:
            assert time.monotonic() < deadline, shell.log.read_text()
            time.sleep(0.1)
        with (job.folder / "app.log").open("a") as log:
            log.write('{"user": 2, "label": 0}\n')
    peek, check = block("headrace dataset peek clicks")
    assert shell.run(peek).count("\n") >= 5
    shell.run(check)


def test_curl_pushes_a_file_once(job: Any, shell: Shell) -> None:
    shell.type(block("headrace up -f clicks.yaml")[0])
    at = shell.says(r"trainers can come.* metrics=(\S+)")[1]
    token = (Path(job.env["HEADRACE_STATE"]) / "token").read_text().strip()
    command = "".join(block("curl")).replace("MASTER-HTTP", at).replace("TOKEN", shlex.quote(token))
    for already in (False, True):
        answer = json.loads(shell.run(command))
        assert (answer["already"], answer["records"]) == (already, 100_001), answer
    assert shell.visible() == 100_001


def test_the_go_program_pushes_a_record_once(job: Any, shell: Shell) -> None:
    go = shutil.which(os.environ.get("GO", "go"))
    assert go is not None, "there is no go on the PATH, and GO does not name one"
    assert len(GO) == 1
    program, overlay, built = job.folder / "main.go", job.folder / "overlay.json", job.folder / "program"
    program.write_text(PROGRAM % GO[0])
    overlay.write_text(json.dumps({"Replace": {str(ROOT / "cmd" / "landing-page" / "main.go"): str(program)}}))
    subprocess.run(
        [go, "build", "-trimpath", "-overlay", str(overlay), "-o", str(built), "./cmd/landing-page"],
        cwd=ROOT, check=True, timeout=900, env={**os.environ, "CGO_ENABLED": "0"},
    )  # fmt: skip
    shell.type(block("headrace up -f clicks.yaml")[0])
    shell.says("trainers can come")
    for _ in range(2):
        assert shell.run(f"{shlex.quote(str(built))} {shlex.quote(job.env['HEADRACE_STATE'])}") == "true 1 true <nil>\n"
    assert shell.visible() == 1
