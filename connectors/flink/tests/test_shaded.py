"""The shaded jar for SQL holds all that an upload needs, under names that work: a program that has only this jar,
and the slf4j that Flink brings, puts records into a real S3 server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import headrace
import pytest
from s3_server import Server

LINE = {"1.20.3": "v1.20", "2.3.0": "v2"}[os.environ["HEADRACE_FLINK"]]
FLINK = Path(__file__).resolve().parents[1]

SPEC = """
name: clicks
landing: {end: pushed}
decode:
  format: json
  columns:
    - {name: n, path: /n, dtype: int64}
"""

PROGRAM = """
import io.github.headrace.push.*;

class Upload {
    public static void main(String[] args) throws Exception {
        try (Pusher p = Pusher.builder(Target.builder().state(args[0]).build(), "clicks").upload().open()) {
            Transaction t = p.begin("t");
            for (int i = 0; i < 1000; i++) {
                t.push(PushRecord.of("{\\"n\\": " + i + "}"));
            }
            System.out.println(t.commit().records());
        }
    }
}
"""


def test_a_program_with_the_shaded_jar_alone_uploads(job: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    (jar,) = (FLINK / LINE / "sql" / "target").glob("flink-sql-connector-headrace-*.jar")
    class_path = (FLINK / LINE / "connector" / "target" / "classpath.txt").read_text()
    (slf4j,) = re.findall(r"[^:]*/slf4j-api-[^:]*\.jar", class_path)
    prefix = f"shaded-{job.folder.name}"
    job.env.update(server.env, HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}")
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPEC)
    job.up("-f", str(spec))

    def chunks() -> list[str]:
        """Without what the master notes there."""
        return [key for key in server.list(prefix) if "/visible/" not in key]

    before = len(chunks())
    program = job.folder / "Upload.java"
    program.write_text(PROGRAM)

    def run() -> subprocess.CompletedProcess[str]:
        command = ["java", "-cp", f"{jar}:{slf4j}", str(program), job.env["HEADRACE_STATE"]]
        return subprocess.run(command, env=job.env, capture_output=True, text=True, timeout=300)

    job.env["AWS_SECRET_ACCESS_KEY"] = "not the secret key"
    refused = run()
    assert refused.returncode != 0
    assert "the service answers 403" in refused.stderr
    job.env.update(server.env)
    done = run()
    assert done.stdout == "1000\n", done.stdout + done.stderr
    assert len(chunks()) == before + 1
    with headrace.Pusher("clicks") as pusher:
        landed = pusher.landed("t")
    assert landed is not None
    assert landed.records == 1000
