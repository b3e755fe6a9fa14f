"""examples/axolotl_ray on a real Ray Train, against the real binary: one worker is killed,
the group goes on from its newest checkpoint, and each record is in the model once."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
import headrace.ray
import pytest
import yaml

EXAMPLE = Path(__file__).parents[3] / "examples" / "axolotl_ray"
RECORDS = 8_000
WORKERS, EVERY = 2, 5

# The worker of the example. In the first attempt one rank waits at a step until a checkpoint is
# there, and kills itself.
KILLED = """
import os, signal, sys, time
from pathlib import Path
import ray.train
import train

worker, folder = train.worker, Path(sys.argv[1]).resolve().parent
victim, at = map(int, os.environ["KILL"].split(","))

def killed(config):
    import headrace.torch
    mark = folder / "killed"
    said = headrace.torch.Loader.step

    def step(self, step=None, **more):
        if step == at and not mark.exists():
            while not list(folder.glob("out/step-*/headrace-manifest.json")):
                time.sleep(0.01)
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return said(self, step, **more)

    if ray.train.get_context().get_world_rank() == victim and not mark.exists():
        headrace.torch.Loader.step = step
    worker(config)

train.worker = killed
train.main()
"""


def made(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_record_is_in_the_model_once_though_a_worker_is_killed(job: Any, rng: random.Random) -> None:
    for name in ("train.py", "texts.yaml"):
        shutil.copy(EXAMPLE / name, job.folder / name)
    line = made("make_texts").line
    for f in range(4):
        (job.data / f"part-{f}.jsonl").write_text("".join(line(i) for i in range(f, RECORDS, 4)))
    config = yaml.safe_load((EXAMPLE / "config.yml").read_text())
    config.update(save_steps=EVERY, ray_max_failures=1)
    (job.folder / "config.yml").write_text(yaml.safe_dump(config))
    (job.folder / "killed.py").write_text(KILLED)
    job.up("--model", "replicated", "-f", str(job.folder / "texts.yaml"))

    env = {**job.env, "KILL": f"{rng.randrange(WORKERS)},{rng.randint(EVERY + 2, 3 * EVERY)}"}
    env["PYTHONPATH"] = f"{job.folder}:{env['PYTHONPATH']}"  # the workers import train, too
    log = job.folder / "ray.log"
    with log.open("wb") as out:
        driver = subprocess.Popen(
            [sys.executable, "killed.py", "config.yml"], cwd=job.folder, env=env, stdout=out, stderr=out
        )
        job.processes.append(driver)
        code = driver.wait(1500)
    text = "\n".join(dict.fromkeys(log.read_text().splitlines()))  # Ray shows what a worker prints twice
    assert code == 0, text[-8000:] + job.logs()[-4000:]
    assert (job.folder / "killed").exists()

    begun = [int(n) for n in re.findall(r"rank \d begins at step (\d+)", text)]
    assert len(begun) == 2 * WORKERS, text[-8000:]
    assert begun[:WORKERS] == [0] * WORKERS
    assert min(begun[WORKERS:]) == max(begun[WORKERS:]) >= EVERY, begun
    ends = re.findall(r"rank (\d) ends: step (\d+) records (\d+) checksum (\d+) weights (\S+)", text)
    assert sorted(e[0] for e in ends) == [str(r) for r in range(WORKERS)], text[-8000:]
    assert len({e[1:] for e in ends}) == 1, ends
    assert ends[0][2:4] == (str(RECORDS), str(sum(i * 7919 + i * i for i in range(RECORDS)))), ends
    (newest,) = [m.parent for m in job.folder.glob(f"out/step-{int(ends[0][1]):010d}-*/headrace-manifest.json")]
    audit = json.loads(job.headrace("audit", str(newest), "-o", "json").stdout)
    assert audit["datasets"][0]["records"]["rows"] == RECORDS


def test_outside_a_worker_init_says_what_to_call() -> None:
    with pytest.raises(headrace.HeadraceError, match=r"call it in the function.*headrace\.init\(rank="):
        headrace.ray.init()
