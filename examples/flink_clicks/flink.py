"""A Flink cluster on this machine: a job manager, task managers and the SQL client, from Flink's own jars."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Flink's own start scripts pass these to Java 17; this job needs only some of them.
OPENS = ["java.base/java.lang", "java.base/java.util", "java.base/java.net", "java.base/java.io", "java.base/java.nio"]
OPENS += ["java.base/java.lang.reflect", "java.base/java.text", "java.base/java.time", "java.base/java.util.concurrent"]
OPENS += ["java.base/java.util.concurrent.atomic", "java.base/java.util.concurrent.locks", "java.base/sun.nio.ch"]

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"

# Flink's start script computes these from the size of the process.
SIZES = {
    "taskmanager.cpu.cores": "2.0",
    "taskmanager.memory.task.heap.size": "256m",
    "taskmanager.memory.task.off-heap.size": "0",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}
MEMORY = [word for name, size in SIZES.items() for word in ("-D", f"{name}={size}")]


def jars(version: str) -> Path:
    """The folder with Flink's jars. Maven gets them the first time: about 140 MB."""
    lib = ROOT / "build" / f"flink-{version}" / "lib"
    if not (lib.parent / "complete").exists():
        print(f"getting the jars of Flink {version}", flush=True)
        command = ["mvn", "-q", "-B", "-ntp", "-f", HERE / "pom.xml", f"-Dflink.version={version}"]
        subprocess.run([*command, "dependency:copy-dependencies", f"-DoutputDirectory={lib}"], check=True)
        (lib.parent / "complete").touch()
    return lib


def connector(version: str) -> Path:
    """The shaded jar that `make flink` has built for this Flink."""
    line, suffix = ("v1.20", "1.20") if version.startswith("1.20") else ("v2", "2.x")
    jar = ROOT / "connectors" / "flink" / line / "sql" / "target" / f"flink-sql-connector-headrace-0.1.0-{suffix}.jar"
    if not jar.exists():
        raise SystemExit(f"{jar} is not there: run `make flink`")
    return jar


class Cluster:
    """The connector's jar is on the class path of every process, as if it were in Flink's lib/."""

    def __init__(self, version: str, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.class_path = f"{connector(version)}:{jars(version)}/*"
        conf = folder / "conf"
        conf.mkdir(parents=True)
        (conf / "config.yaml").write_text(
            f"""\
rest.address: 127.0.0.1
rest.port: {self.port}
rest.bind-address: 127.0.0.1
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {_free_port()}
jobmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 2
taskmanager.memory.process.size: 1g
taskmanager.memory.managed.size: 64m
taskmanager.memory.network.min: 32m
taskmanager.memory.network.max: 32m
execution.target: remote
heartbeat.interval: 1000
heartbeat.timeout: 10000
io.tmp.dirs: {folder}
"""
        )
        self.job_manager = self._java("jobmanager", JOB_MANAGER)
        self.task_manager = self._java("taskmanager", TASK_MANAGER, *MEMORY)

    def _java(self, name: str, main: str, *args: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self._command(main, "--configDir", str(self.folder / "conf"), *args), stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def _command(self, main: str, *args: str) -> list[str]:
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENS]
        return [
            "java",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *opens,
            "-cp",
            self.class_path,
            main,
            *args,
        ]

    def restart_task_manager(self) -> None:
        """Ends the task manager with kill -9 and starts another one."""
        self.task_manager.kill()
        self.task_manager.wait()
        self.task_manager = self._java("taskmanager", TASK_MANAGER, *MEMORY)

    def submit(self, script: Path) -> str:
        """Runs a script in the SQL client, and returns the id of the job that it starts."""
        self.until("the cluster has slots", lambda: self.get("/overview")["slots-total"] > 0)
        env = {**os.environ, "FLINK_CONF_DIR": str(self.folder / "conf")}
        command = self._command("org.apache.flink.table.client.SqlClient", "-f", str(script))
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        found = re.search(r"Job ID: ([0-9a-f]{32})", done.stdout)
        if done.returncode != 0 or found is None:
            raise SystemExit(f"the SQL client has not started a job:\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
        return found[1]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)

    def state(self, job: str) -> str:
        return str(self.get(f"/jobs/{job}")["state"])

    def checkpoints(self, job: str, which: str) -> int:
        """The number of checkpoints: completed, or restored."""
        return int(self.get(f"/jobs/{job}/checkpoints")["counts"][which])

    def until(self, what: str, reached: Any, seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds  # only ends a hang
        while True:
            try:
                if reached():
                    return
            except (OSError, KeyError):
                pass  # not up yet
            for process in (self.job_manager, self.task_manager):
                if process.poll() is not None:
                    raise SystemExit(f"{what}: a process of Flink has ended before; its log is in {self.folder}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: this has not happened within {seconds:.0f} s; the logs are in {self.folder}")
            time.sleep(0.1)

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()


def _free_port() -> int:
    """A free port, below those that the system gives to connections: Flink listens there only later."""
    while True:
        port = random.randrange(12_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
