"""`headrace init`: the program that it writes for a user's data runs unchanged, trains, and goes on
from its checkpoint after a kill."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS = 30_000


def clicks(rng: random.Random, rows: int) -> list[dict[str, object]]:
    """A click log with something to learn: the user, the page and the price decide the label."""
    taste = [rng.random() for _ in range(200)]
    out = []
    for i in range(rows):
        user, page, price = rng.randrange(200), rng.randrange(30), round(rng.expovariate(1 / 20), 2)
        clicked = rng.random() < 0.8 * taste[user] + 0.2 * (price < 10)
        out.append(
            {
                "at": 1_700_000_000 + i,
                "user_id": f"u{user}",
                "page": f'/p/{page}, "{page}"',
                "price": price,
                "age": "" if i % 11 == 0 else 18 + user % 60,
                "clicked": int(clicked),
            }
        )
    return out


def csv_text(rows: list[dict[str, object]], delimiter: str = ",", header: bool = True) -> str:
    def cell(v: object) -> str:
        text = str(v)
        return '"' + text.replace('"', '""') + '"' if delimiter == "," and ("," in text or '"' in text) else text

    lines = [delimiter.join(map(cell, row.values())) for row in rows]
    return "\n".join(([delimiter.join(rows[0])] if header else []) + lines) + "\n"


def as_csv(data: Path, rows: list[dict[str, object]]) -> None:
    (data / "clicks.csv").write_text(csv_text(rows))


def as_gzipped_csvs(data: Path, rows: list[dict[str, object]]) -> None:
    half = len(rows) // 2
    for n, part in enumerate((rows[:half], rows[half:])):
        (data / f"d{n}.csv.gz").write_bytes(gzip.compress(csv_text(part).encode()))


def as_tsv_without_a_header(data: Path, rows: list[dict[str, object]]) -> None:
    (data / "clicks.tsv").write_text(csv_text(rows, "\t", header=False))


def as_json(data: Path, rows: list[dict[str, object]]) -> None:
    with (data / "clicks.jsonl").open("w") as file:
        for row in rows:
            nested = {k: v for k, v in row.items() if k not in ("user_id", "age") and v != ""}
            nested["user"] = {"id": row["user_id"], "age": row["age"] if row["age"] != "" else None}
            nested["tags"] = ["a", "b"] if row["clicked"] else []
            file.write(json.dumps(nested) + "\n")


def as_parquet(data: Path, rows: list[dict[str, object]]) -> None:
    # The environments with numpy 1 have no pyarrow: see PYTHON_ARROW in the Makefile.
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    columns = {name: [None if row[name] == "" else row[name] for row in rows] for name in rows[0]}
    columns["at"] = arrow.array([at * 1000 for at in columns["at"]], arrow.timestamp("ms"))
    pyarrow.parquet.write_table(arrow.table(columns), data / "clicks.parquet")


Write = Callable[[Path, list[dict[str, object]]], None]


class Project:
    """A newcomer's folder, and a machine of its own for `headrace`."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        (folder / "data").mkdir()
        for name in ("s", "r"):
            (folder / name).mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.env.update(XDG_STATE_HOME=str(folder / "s"), XDG_RUNTIME_DIR=str(folder / "r"))
        self.env["HEADRACE_SESSION_TTL"] = "20s"  # so long that no session ends on a slow machine
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env['PATH']}"

    def headrace(self, *args: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.binary, *args], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=800
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def change(self, old: str, new: str) -> None:
        """Changes one place in the program that init wrote."""
        program = (self.folder / "train.py").read_text()
        assert program.count(old) == 1, program
        (self.folder / "train.py").write_text(program.replace(old, new))

    def next_command(self, out: str) -> list[str]:
        """The command that init says to type next."""
        command = out.split("The next command:")[1].split()
        assert command[0] == "headrace", out
        return command[1:]


@pytest.fixture
def project(binary: str, folder: str) -> Project:
    return Project(binary, Path(folder))


# Once there is a checkpoint, a trainer that finds this module waits in step() until it is killed.
HOLDS = """
import glob, time
import headrace

said = headrace.Stream.step

def step(*args, **more):
    while glob.glob("checkpoints/*/headrace-manifest.json"):
        time.sleep(0.01)
    return said(*args, **more)

headrace.Stream.step = step
"""


def losses(out: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", out)]


@pytest.mark.parametrize("write", [as_csv, as_gzipped_csvs, as_tsv_without_a_header, as_json, as_parquet])
def test_what_init_writes_trains_on_every_record_once(project: Project, write: Write, rng: random.Random) -> None:
    write(project.folder / "data", clicks(rng, ROWS))
    wrote = project.headrace("init", "data").stdout
    assert "to predict" in wrote
    assert sorted(p.name for p in project.folder.glob("*.*")) == ["data.yaml", "headrace.yaml", "train.py"]
    run = project.next_command(wrote)
    first = project.headrace(*run)
    assert f"end of data: {ROWS:,} records in this run" in first.stdout, first.stdout + first.stderr
    assert "in no checkpoint" not in first.stderr
    assert losses(first.stdout)[-1] < 0.67, first.stdout  # guessing has 0.69
    again = project.headrace(*run)
    assert "end of data: 0 records in this run" in again.stdout, again.stdout + again.stderr


def test_the_last_step_is_saved_once_whatever_its_number(project: Project, rng: random.Random) -> None:
    """Each step is saved, so the last one is saved already when the program ends."""
    as_csv(project.folder / "data", clicks(rng, 5_000))
    run = project.next_command(project.headrace("init", "data").stdout)
    project.change("save_every(100, ", "save_every(1, ")
    project.headrace(*run)
    newest = max(f for f in (project.folder / "checkpoints").iterdir() if f.name.startswith("step-"))
    assert newest.name.startswith("step-0000000005-"), newest
    assert [p.name for p in newest.glob("*.safetensors")] == ["state.safetensors"], newest


def test_a_fresh_run_trains_everything_again_beside_old_checkpoints(project: Project, rng: random.Random) -> None:
    as_csv(project.folder / "data", clicks(rng, ROWS // 10))
    run = project.next_command(project.headrace("init", "data").stdout)
    project.headrace(*run)
    done = project.headrace(*run)
    assert "nothing is left to train on; `headrace run --fresh`" in done.stderr
    fresh = project.headrace("run", "--fresh", *run[1:])
    assert f"end of data: {ROWS // 10:,} records in this run" in fresh.stdout, fresh.stdout + fresh.stderr
    after = project.headrace(*run)  # goes on from the checkpoints of the fresh run
    assert "end of data: 0 records in this run" in after.stdout, after.stdout + after.stderr


def test_what_init_writes_goes_on_after_a_kill(project: Project, rng: random.Random) -> None:
    header, rows = csv_text(clicks(rng, ROWS)).split("\n", 1)
    (project.folder / "data" / "clicks.csv").write_text(header + "\n" + 20 * rows)
    run = project.next_command(project.headrace("init", "data/clicks.csv").stdout)
    (project.folder / "holds").mkdir()
    (project.folder / "holds" / "sitecustomize.py").write_text(HOLDS)
    path = f"{project.folder / 'holds'}:{project.env.get('PYTHONPATH', '')}".rstrip(":")
    log = (project.folder / "log").open("wb")
    process = subprocess.Popen(
        [project.binary, *run], cwd=project.folder, env={**project.env, "PYTHONPATH": path}, stdout=log, stderr=log
    )
    deadline = time.monotonic() + 300
    while not list(project.folder.glob("checkpoints/*/headrace-manifest.json")):
        assert process.poll() is None, (project.folder / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)  # `headrace run`; its trainers die with it
    process.wait()
    log.close()
    out = project.headrace(*run).stdout
    (rows,) = re.findall(r"end of data: ([0-9,]+) records in this run", out)
    restored = 20 * ROWS - int(rows.replace(",", ""))
    assert 0 < restored < 20 * ROWS
    newest = project.headrace("ckpt", "list", "checkpoints", "-o", "json")
    assert json.loads(newest.stdout), newest.stdout
    held = project.headrace("audit", "checkpoints", "-o", "json").stdout
    assert json.loads(held)["datasets"][0]["records"]["rows"] == 20 * ROWS, held


def test_a_number_is_predicted_where_there_is_no_label(project: Project, rng: random.Random) -> None:
    lines = []
    for _ in range(ROWS):
        x, kind = rng.gauss(50, 20), rng.randrange(5)
        lines.append(f"{x:.2f},k{kind},{3 * x + 40 * kind + rng.gauss(0, 1):.2f}")
    (project.folder / "data" / "d.csv").write_text("size,kind,cost\n" + "\n".join(lines) + "\n")
    wrote = project.headrace("init", "data/d.csv").stdout
    assert "cost: float32, to predict" in wrote
    out = project.headrace(*project.next_command(wrote)).stdout
    assert losses(out)[-1] < 0.4, out  # predicting the mean has 1


@pytest.mark.parametrize("columns", [["x"], ["class", "numbers", "ids"], ["class", "x", "from"]])
@pytest.mark.parametrize("yes_no", [True, False])
def test_the_program_runs_whatever_the_columns_are(
    project: Project, rng: random.Random, columns: list[str], yes_no: bool
) -> None:
    """Only numbers, only ids, or both; also names that Python or the program uses for something else."""
    lines = []
    for _ in range(3000):
        y = rng.randrange(2) if yes_no else rng.gauss(50, 20)
        lines.append(",".join(f"{rng.random() + y:.3f}" if c == "x" else f"{c}{int(y)}" for c in columns) + f",{y}")
    (project.folder / "data" / "d.csv").write_text(",".join(columns) + ",label\n" + "\n".join(lines) + "\n")
    wrote = project.headrace("init", "data/d.csv").stdout
    assert "label: int64, to predict" in wrote if yes_no else "label: float" in wrote, wrote
    run = project.next_command(wrote)
    first = project.headrace(*run)
    assert "end of data: 3,000 records in this run" in first.stdout, first.stdout + first.stderr
    assert losses(first.stdout)[-1] < (0.69 if yes_no else 1), first.stdout  # better than guessing, or than the mean
    again = project.headrace(*run)
    assert "end of data: 0 records in this run" in again.stdout, again.stdout + again.stderr


def test_text_without_fields_is_read_and_counted(project: Project) -> None:
    (project.folder / "data" / "notes.txt").write_text("".join(f"word {'x ' * (i % 9)}\n" for i in range(5000)))
    out = project.headrace(*project.next_command(project.headrace("init", "data/notes.txt").stdout)).stdout
    assert "end of data: 5,000 records in this run" in out


def test_init_overwrites_no_file(project: Project) -> None:
    (project.folder / "data" / "a.csv").write_text("x,y\n1,2\n")
    (project.folder / "train.py").write_text("mine")
    done = subprocess.run(
        [project.binary, "init", "data/a.csv"], cwd=project.folder, env=project.env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "train.py is there already" in done.stderr
    assert "--force" in done.stderr
    assert (project.folder / "train.py").read_text() == "mine"
    assert not (project.folder / "a.yaml").exists()
    project.headrace("init", "data/a.csv", "--force")
    assert "import headrace" in (project.folder / "train.py").read_text()


def test_several_ranks_are_refused_and_write_no_checkpoint(project: Project, rng: random.Random) -> None:
    """Otherwise each rank would train a model of its own, and the checkpoint would list the records of all."""
    as_csv(project.folder / "data", clicks(rng, 5_000))
    run = project.next_command(project.headrace("init", "data").stdout)
    done = subprocess.run(
        [project.binary, "run", "--nproc-per-node", "2", *run[1:]],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 1
    assert "trains one model in one process. Start one, with --nproc-per-node 1" in done.stderr, done.stderr
    assert "docs/torch.md" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project.folder / "checkpoints").exists()
    assert "several ranks need DDP" in (project.folder / "headrace.yaml").read_text()


def test_a_plain_python_finds_the_job_that_init_named(project: Project) -> None:
    """`headrace up` runs, and the program is started without any HEADRACE_* variable."""
    (project.folder / "data" / "d.csv").write_text("x,label\n" + "".join(f"{i},{i % 2}\n" for i in range(100)))
    project.headrace("init", "data/d.csv")
    up = subprocess.Popen(
        [project.binary, "up", "-f", "d.yaml"], cwd=project.folder, env=project.env, stderr=subprocess.PIPE, text=True
    )
    try:
        assert up.stderr is not None
        while "trainers can come" not in (line := up.stderr.readline()):
            assert line, "`headrace up` has ended"
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=project.folder,
            env=project.env,
            capture_output=True,
            text=True,
            timeout=800,
        )
        assert done.returncode == 0, done.stderr
        assert "end of data: 100 records in this run" in done.stdout
    finally:
        up.terminate()
        up.communicate(timeout=300)


def test_a_loss_that_is_no_number_ends_the_program_before_it_is_saved(project: Project, rng: random.Random) -> None:
    as_csv(project.folder / "data", clicks(rng, 5_000))
    run = project.next_command(project.headrace("init", "data").stdout)
    project.change("    return np.mean(", "    return np.nan * np.mean(")
    done = subprocess.run(
        [project.binary, *run], cwd=project.folder, env=project.env, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 1
    said = "batch 1: loss nan. Look at the records (headrace peek data), or lower rate"
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(project.folder.glob("checkpoints/*/headrace-manifest.json"))
