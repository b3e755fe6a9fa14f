"""Copies of checkpoints in memory between nodes that have a network of their own.

Each node is a network namespace with an agent, a trainer and a memory folder; a bridge joins
it to the others and to the master. The ports are not on loopback, so all of them show
certificates. A node is lost with all its processes and its memory; a cable is pulled.

Making namespaces needs root. Where they are not allowed, the same tests run on addresses of
loopback, the output says so, and the tests stop an agent instead of pulling a cable.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_replicas import Node, until
from in_memory import TRAINER, memory, of_end, restored, told
from seen import settings

__all__ = ["memory"]  # a fixture

pytestmark = pytest.mark.filterwarnings("default:no network namespaces")  # show the warning, do not fail

NODES = ("node-a", "node-b", "node-c")
NOTHING = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Network:
    """Namespaces for the master ("hub") and the nodes, on one bridge. `missing` says why there are none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = {"hub": "127.0.0.1", **{name: f"127.0.0.{n}" for n, name in enumerate(NODES, 2)}}
        self._spaces = {name: f"headrace-{os.getpid()}-{name}" for name in ("hub", *NODES)}
        self.missing = "NO_NAMESPACES is set"
        if not os.environ.get("NO_NAMESPACES"):
            try:
                self._make()
                self.missing = ""
                self.address = {name: f"10.213.0.{n}" for n, name in enumerate(self._spaces, 1)}
            except (OSError, subprocess.CalledProcessError) as error:
                self.remove()
                self.missing = str(getattr(error, "stderr", b"").decode().strip() or error)
        self._authority()

    @property
    def real(self) -> bool:
        return not self.missing

    def _make(self) -> None:
        def ip(*words: str) -> None:
            subprocess.run(["ip", *words], check=True, capture_output=True)

        hub = self._spaces["hub"]
        for space in self._spaces.values():
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "addr", "add", "10.213.0.1/24", "dev", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for n, name in enumerate(NODES, 2):
            space = self._spaces[name]
            ip("link", "add", name, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", hub, "link", "set", name, "master", "bridge", "up")
            ip("-n", space, "addr", "add", f"10.213.0.{n}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")

    def _authority(self) -> None:
        """Makes a key and a certificate for each address."""

        def openssl(*words: str) -> None:
            subprocess.run(["openssl", *words], cwd=self.folder, check=True, **NOTHING)  # type: ignore[call-overload]

        new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        openssl(*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.crt")
        for name, address in {**self.address, "operator": "127.0.0.1"}.items():
            openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
            of = self.folder / f"{name}.ext"
            of.write_text(f"subjectAltName=DNS:{name},IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\n")
            sign = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", str(of))
            openssl("x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.crt")

    def tls(self, name: str) -> list[str]:
        at = self.folder
        return ["--tls-cert", f"{at}/{name}.crt", "--tls-key", f"{at}/{name}.key", "--tls-ca", f"{at}/ca.crt"]

    def within(self, name: str) -> tuple[str, ...]:
        """The command that starts a process in that namespace."""
        return ("ip", "netns", "exec", self._spaces[name]) if self.real else ()

    def pids(self, name: str) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self._spaces[name]], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def cable(self, node: Host, is_in: bool) -> None:
        if self.real:
            state = "up" if is_in else "down"
            subprocess.run(["ip", "-n", self._spaces["hub"], "link", "set", node.name, state], check=True)
            return
        assert node.agent is not None
        node.agent.send_signal(signal.SIGCONT if is_in else signal.SIGSTOP)

    def remove(self) -> None:
        for space in self._spaces.values():
            subprocess.run(["ip", "netns", "del", space], **NOTHING)  # type: ignore[call-overload]


class Host(Node):
    """A node with a network of its own. It does not see the master's files."""

    def __init__(self, job: Any, memory: Path, network: Network, name: str, master: str) -> None:
        super().__init__(job, memory, name)
        self.network, self.trainers = network, []
        self.within = network.within(name)
        self.env["HEADRACE_STATE"] = str(job.folder / f"state-{name}")
        self.more = ("--master", master, "--peer-listen", f"{network.address[name]}:0", *network.tls(name))
        self.more += ("--role", "agent=node-*")

    def start(self, *more: str) -> Host:
        self.more += more
        super().start()
        return self

    def trainer(self, code: str, rank: int = 0, world: int = 1, **how: str) -> Any:
        trainer = super().trainer(code, rank, world, **how)
        self.trainers.append(trainer.process)
        return trainer

    def lose(self) -> None:
        """Kills all its processes at once, and removes its memory."""
        processes = [self.agent, *self.trainers]
        pids = self.network.pids(self.name) if self.network.real else [p.pid for p in processes if p.poll() is None]
        assert len(pids) >= 2, (pids, self.job.logs())  # the agent and a trainer
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for process in processes:
            process.wait()
        assert not self.network.real or not self.network.pids(self.name)
        shutil.rmtree(self.memory)


@pytest.fixture
def network(job: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    network = Network(tmp_path_factory.mktemp("network"))
    if not network.real:
        warnings.warn(
            f"no network namespaces ({network.missing}). The nodes are addresses of loopback, and a pulled cable is an "
            "agent that is stopped. Not tested here: ports off loopback, lost packets",
            stacklevel=1,
        )
    yield network
    for process in job.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
    job.stop()
    network.remove()


def hosts(job: Any, memory: Path, network: Network, *more: str) -> list[Host]:
    """Starts a master, and makes nodes that are not started yet. more: settings of their agents."""
    within, address = network.within("hub"), network.address["hub"]
    command = [*within, job.binary, "master", "--listen", f"{address}:0", "--http", "off", "--model", "private"]
    command += ["--session-ttl", "5s", "--allow-root", str(job.folder), *network.tls("hub")]
    command += ["--role", "agent=node-*", "--role", "operator=operator"]
    with (job.folder / "master.log").open("wb") as log:
        job.processes.append(subprocess.Popen(command, env=job.env, stdout=log, stderr=log))
    at = job.folder / "state" / "master.addr"
    until(at.exists, job)
    master = at.read_text().split()[0]
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows"))
    command = [*within, job.binary, "dataset", "apply", "-f", str(spec), "--master", master, *network.tls("operator")]
    applied = subprocess.run(command, env=job.env, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr + job.logs()
    nodes = [Host(job, memory, network, name, master) for name in NODES]
    for node in nodes:
        node.more += more
    return nodes


def test_the_rank_of_a_node_that_is_lost_comes_back_from_its_peer(job: Any, memory: Path, network: Network) -> None:
    n = job.write(5000)
    a, b, c = hosts(job, memory, network)
    a.start()
    b.start()
    a.trainer(TRAINER, **settings(job, n, every=1000, waits=31))
    until(lambda: 31 in b.steps(), job)
    a.lose()
    (job.folder / "ckpt" / "go").touch()
    c.start()
    out = c.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    assert restored(out)[1:4] == ["31", "1550", "peer"], out + job.logs()
    assert "memory of agent node-b" in out, out
    assert (of_end(out) == 1).all(), out


def test_a_cable_that_is_pulled_in_a_copy_tears_nothing_and_the_copy_comes_later(
    job: Any, memory: Path, network: Network
) -> None:
    """The trainer does not notice. When the cable is back, the newest checkpoint is copied. After the
    trainer's node is lost, the rank goes back to this copy."""
    n = job.write(5000)
    a, b, c = hosts(job, memory, network, "--replica-bandwidth", "128KiB")
    a.start()
    b.start()
    trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=60))
    # The state has 360 KB, so a copy takes 2.8 s. One copy is complete, and the next one is under way.
    until(lambda: len(b.slots("replica")) == 2 and len(b.steps()) == 1, job)
    network.cable(b, is_in=False)
    whole = b.steps()
    assert len(whole) == 1, whole
    told(trainer, "saved 60")
    assert b.steps() == whole
    network.cable(b, is_in=True)
    until(lambda: 60 in b.steps(), job)
    a.lose()
    (job.folder / "ckpt" / "go").touch()
    c.start()
    out = c.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    assert restored(out)[1:4] == ["60", "3000", "peer"], out + job.logs()
    assert (of_end(out) == 1).all(), out


def test_a_node_whose_cable_stays_out_is_passed_over(job: Any, memory: Path, network: Network) -> None:
    """The copy under way fails after 30 s without progress. Then the copies go to the next node of the
    ring, and a lost rank comes back from there."""
    n = job.write(5000)
    a, b, c = hosts(job, memory, network, "--replica-bandwidth", "128KiB")
    for node in (a, b, c):
        node.start()
    trainer = a.trainer(TRAINER, **settings(job, n, every=1000, waits=60))
    until(lambda: len(b.slots("replica")) == 2 and len(b.steps()) == 1, job)
    network.cable(b, is_in=False)
    told(trainer, "saved 60")
    until(lambda: 60 in c.steps(), job)
    assert 60 not in b.steps()
    a.lose()
    (job.folder / "ckpt" / "go").touch()
    out = c.trainer(TRAINER, **settings(job, n, every=1000)).ended()
    assert restored(out)[1:3] == ["60", "3000"], out + job.logs()  # node c's own agent keeps the copy
    assert (of_end(out) == 1).all(), out
