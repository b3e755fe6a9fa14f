"""Pushed records against the real binary. Whenever the pusher or the master is killed, each
transaction comes once or not at all. HEADRACE_SEED repeats the random moments."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import pytest
from headrace import _master

SPEC = """
name: {name}
landing: {{end: pushed, partitions: {partitions}, key: /user, chunk: 1KiB, retain: 0s{more}}}
decode:
  format: json
  columns:
    - {{name: number, path: /number, dtype: int64}}
    - {{name: user, path: /user, dtype: string}}
"""

# Prints the numbers of all records in their order, until the end of data.
TRAINER = """
import headrace, sys
with headrace.dataset("clicks").batches(50, max_wait=0.05) as stream:
    for b in stream:
        print(*b["number"].tolist(), flush=True)
        stream.step()
print("end", flush=True)
"""

PUSHER = """
import itertools, os, signal, sys
from headrace import _master
import headrace
at, transaction = int(sys.argv[1]), sys.argv[2]
numbers, ask = itertools.count(1), _master.Master._once
def counted(self, *request):
    call = next(numbers)
    if call == at:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = ask(self, *request)
    if call == -at:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
_master.Master._once = counted
rows = ({"user": f"u{i % 7}", "number": i} for i in range(60))
if sys.argv[3] == "one call":  # the last chunks go with the commit
    done = headrace.push("clicks", rows, transaction=transaction)
else:
    pusher = headrace.Pusher("clicks")
    done = pusher.landed(transaction)
    if done is None:
        t = pusher.begin(transaction)
        for row in rows:
            t.push(row)
        done = pusher.commit(transaction, t.stage())
print(next(numbers) - 1, done.already, done.records)
"""


def start(job: Any, partitions: int = 3, more: str = "") -> None:
    """Starts a master and an agent, each in a process of its own, and applies the dataset."""
    os.environ["HEADRACE_STATE"] = job.env["HEADRACE_STATE"]
    start_master(job)
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPEC.format(name="clicks", partitions=partitions, more=more))
    job.headrace("dataset", "apply", "-f", str(spec))


def start_agent(job: Any) -> None:
    job.await_socket(job.start("agent", "--name", "one", "--socket", job.socket, "--allow-root", str(job.folder)))


def start_master(job: Any) -> None:
    """Starts a master, also after a kill, which leaves the address file of the one before."""
    address = Path(job.env["HEADRACE_STATE"]) / "master.addr"
    address.unlink(missing_ok=True)
    job.master = job.start("master", "--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s")
    deadline = time.monotonic() + 120
    while not address.exists():
        assert job.master.poll() is None, job.logs()
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.01)


def kill(job: Any) -> None:
    job.master.kill()
    job.master.wait()
    start_master(job)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_STATE", "set by the test")  # monkeypatch removes it after the test


def numbers(log: str) -> list[int]:
    assert log.endswith("end\n"), log
    return [int(n) for n in log.removesuffix("end\n").split()]


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"user": f"u{i % 7}", "number": i} for i in range(start, stop)]


def test_pushed_records_come_once_and_in_the_order_of_their_key(job: Any) -> None:
    start(job)
    start_agent(job)
    with headrace.Pusher("clicks") as pusher:
        for n in range(20):
            with pusher.begin(f"t{n}") as t:
                for row in rows(100 * n, 100 * (n + 1)):
                    t.push(row)
            assert t.done == headrace.Pushed(f"t{n}", False, 100)
        assert pusher.landed("t3") == headrace.Pushed("t3", True, 100)
        assert pusher.landed("t20") is None

        def unread() -> Any:
            raise AssertionError("the transaction has landed, but its records were read again")
            yield

        assert headrace.push("clicks", unread(), transaction="t3") == headrace.Pushed("t3", True, 100)
        pusher.end()
        with pytest.raises(headrace.PushError, match="has ended"), pusher.begin() as t:
            t.push({"number": 0})
    got = numbers(job.trainer(TRAINER).ended())
    assert sorted(got) == list(range(2000))
    for user in range(7):  # there is one trainer, so the records of each key come in order
        of = [n for n in got if n % 7 == user]
        assert of == sorted(of)


def test_a_pusher_that_is_killed_between_any_two_calls_pushes_once(job: Any) -> None:
    start(job)
    start_agent(job)
    trainer = job.trainer(TRAINER)
    transactions = 0
    for before, way in itertools.product((True, False), ("one call", "two calls")):
        for at in range(1, 100):
            name = f"{before}-{way}-{at}"
            pusher = job.helper(PUSHER, str(at if before else -at), name, way)
            said = pusher.ended()
            if pusher.process.returncode == 0:
                # calls: layout, landed, then one chunk and the commit, or several chunks and the commit
                assert at >= (4 if way == "one call" else 6), said
                transactions += 1
                break
            assert pusher.process.returncode == -signal.SIGKILL, said
            again = job.helper(PUSHER, "0", name, way)
            calls, already, records = again.ended().split()
            assert again.process.returncode == 0
            assert records == "60"
            assert (already == "True") == (calls == "2"), "a transaction that had landed was sent again"
            transactions += 1
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    want = Counter(dict.fromkeys(range(60), transactions))
    assert Counter(numbers(trainer.ended())) == want


class Killing:
    """Kills the master before, during or after a call."""

    def __init__(self, job: Any, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.lock, self.calls, self.at, self.where, self.kills = threading.Lock(), 0, 0, "", 0
        once = _master.Master._once

        def watched(master: Any, *request: Any) -> Any:
            with self.lock:  # one call at a time, so that each call has a number
                self.calls += 1
                here = self.calls == self.at
                if here and self.where == "before":
                    kill(job)
                killer = None
                if here and self.where == "in":
                    pause = rng.random() * 0.003  # a random moment of the call
                    killer = threading.Thread(target=lambda: (time.sleep(pause), job.master.kill()))
                    killer.start()
                try:
                    answer = once(master, *request)
                finally:
                    if killer is not None:
                        killer.join()
                        kill(job)
                if here and self.where == "after":
                    kill(job)
                self.kills += here
                return answer

        monkeypatch.setattr(_master.Master, "_once", watched)

    def next(self, where: str, at: int) -> None:
        self.where, self.at, self.calls = where, at, 0


def test_a_master_that_is_killed_around_any_call_loses_and_repeats_nothing(
    job: Any, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    start(job)
    start_agent(job)
    trainer = job.trainer(TRAINER)
    killing = Killing(job, monkeypatch, rng)
    begun = 0

    def push(name: str, data: list[dict[str, Any]], one: bool) -> headrace.Pushed:
        if one:
            return headrace.push("clicks", data, transaction=name)
        with headrace.Pusher("clicks") as pusher:
            landed = pusher.landed(name)
            if landed is not None:
                return landed
            t = pusher.begin(name)
            for row in data:
                t.push(row)
            return pusher.commit(name, t.stage())

    for where, one in itertools.product(("before", "in", "after"), (True, False)):
        # calls: layout, landed, then one call with everything, or two chunks and the commit
        for at in range(1, 4 if one else 6):
            killing.next(where, at)
            name = f"{where}-{one}-{at}"
            data = rows(20 * begun, 20 * (begun + 1))
            done = push(name, data, one)
            assert done.records == 20
            assert killing.calls >= (3 if one else 5)
            assert push(name, data, one) == headrace.Pushed(name, True, 20)
            begun += 1
    killing.at = 0
    with headrace.Pusher("clicks") as pusher:
        # Staged records that are not committed never come. Another process may commit them.
        lost = pusher.begin("lost")
        lost.push({"user": "x", "number": -1})
        lost.stage()
        kill(job)
        handed = pusher.begin("handed over")
        handed.push({"user": "x", "number": 20 * begun})
        locators = handed.stage()
        kill(job)
        with headrace.Pusher("clicks") as other:
            assert not other.commit("handed over", locators).already
        kill(job)
        assert pusher.commit("handed over", locators).already
        pusher.end()
    got = numbers(trainer.ended())
    assert sorted(got) == list(range(20 * begun + 1)), f"{killing.kills} kills"


def test_a_pusher_goes_on_after_its_dataset_was_deleted_and_applied_again(job: Any) -> None:
    start(job, partitions=3)
    with headrace.Pusher("clicks") as pusher:
        with pusher.begin("before") as t:
            t.push({"user": "a", "number": 1})
        staged = pusher.begin("staged")
        staged.push({"user": "a", "number": 2})
        locators = staged.stage()
        job.headrace("delete", "clicks", "--yes")
        (job.folder / "clicks.yaml").write_text(SPEC.format(name="clicks", partitions=1, more=""))
        job.headrace("dataset", "apply", "-f", str(job.folder / "clicks.yaml"))
        with pytest.raises(headrace.PushError, match="before dataset clicks was deleted and applied again"):
            pusher.commit("staged", locators)
        with pusher.begin("after") as t:  # asks again how many partitions there are
            for n in range(100):
                t.push({"user": f"u{n}", "number": n})
        assert t.done is not None
        assert (t.done.records, t.done.already) == (100, False)
        assert pusher.landed("before") is None  # it had landed in the deleted dataset


def test_nothing_is_pushed_after_a_commit_was_tried(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start(job)
    once = _master.Master._once

    def lost(self: Any, *request: Any) -> Any:
        answer = once(self, *request)
        if "/land?" in request[1]:
            raise headrace.PushError("the answer is lost")
        return answer

    with headrace.Pusher("clicks") as pusher:
        with pusher.begin("t1") as t:
            t.push({"number": 1})
            with monkeypatch.context() as m:
                m.setattr(_master.Master, "_once", lost)
                with pytest.raises(headrace.PushError, match="the answer is lost"):
                    t.commit()
            with pytest.raises(headrace.PushError, match="transaction 't1' was staged or committed"):
                t.push({"number": 2})
        assert t.done == headrace.Pushed("t1", True, 1)  # the end of the block has committed again
        with pusher.begin("t2") as t:
            t.push({"number": 3})
            t.commit()
            with pytest.raises(headrace.PushError, match="transaction 't2' was staged or committed"):
                t.push({"number": 4})
        staged = pusher.begin("t3")
        staged.push({"number": 5})
        locators = staged.stage()
        with pytest.raises(headrace.PushError, match="transaction 't3' was staged or committed"):
            staged.push({"number": 6})
        assert staged.stage() == locators
        assert pusher.commit("t3", locators) == headrace.Pushed("t3", False, 1)


def test_a_transaction_lands_once_if_the_next_master_is_of_an_older_version(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(job)
    once, calls = _master.Master._once, []

    def older(self: Any, method: str, path: str, *request: Any) -> Any:
        calls.append(path.split("?")[0].rsplit("/", 1)[1])
        if calls.count("land") == 1 and calls[-1] == "land":
            once(self, method, path, *request)
            raise OSError("the answer is lost")
        # An older version answers a call of `land` as it answers any unknown page.
        return once(self, method, path.replace("/land?", "/no-such-page?"), *request)

    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        for row in rows(0, 20):
            t.push(row)
        monkeypatch.setattr(_master.Master, "_once", older)
        assert t.commit() == headrace.Pushed("t", True, 20)
        assert t.commit() == headrace.Pushed("t", True, 20)
        assert calls[:2] == ["land", "land"]
        assert calls[-2:] == ["commit", "commit"]
        pusher.end()
    start_agent(job)
    assert sorted(numbers(job.trainer(TRAINER).ended())) == list(range(20))


def test_bad_records_and_ids_are_named(job: Any) -> None:
    start(job, more=", max_record: 1KiB")
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("bad")
        t.push({"number": 0})
        for value, error, text in [
            (1, TypeError, "record 1 of transaction 'bad': it is a int"),
            ({"number": object()}, TypeError, "a object is not JSON"),
            ({"number": float("nan")}, ValueError, "record 1"),
            ("x" * 2000, ValueError, "max_record of dataset clicks is 1024"),
            ("{", ValueError, "its key /user"),
        ]:
            with pytest.raises(error, match=re.escape(text)):
                t.push(value)
        assert t.commit().records == 1
        for name in ("", "x" * 201):
            with pytest.raises(ValueError, match="1 to 200 bytes"):
                pusher.begin(name)
        for name in ("..", "a/b", "%2F", "?#", "ä", " "):
            assert headrace.push("clicks", [{"number": 1}], transaction=name) == headrace.Pushed(name, False, 1)
            assert pusher.landed(name) == headrace.Pushed(name, True, 1)
        with pytest.raises(headrace.PushError, match="was not staged for transaction"):
            other = pusher.begin("mine")
            other.push({"number": 2})
            pusher.commit("yours", other.stage())
    with pytest.raises(headrace.DatasetError, match="nothere"):
        headrace.push("nothere", [])
    with pytest.raises(TypeError, match="records is one str"):
        headrace.push("clicks", "text")


def test_only_a_caller_with_the_role_may_push_and_a_stranger_learns_nothing(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(job)
    state = Path(job.env["HEADRACE_STATE"])
    with pytest.raises(headrace.PushError, match="does not accept this process"):
        headrace.push("clicks", [], token="a token that nobody knows".replace(" ", "-"))
    with pytest.raises(headrace.PushError, match="pusher"):
        headrace.push("clicks", [], token_file=str(state / "viewer.token"))
    monkeypatch.setenv("HEADRACE_TOKEN_FILE", str(state / "token"))
    monkeypatch.setenv("HEADRACE_MASTER", (state / "master.addr").read_text().strip())
    monkeypatch.setenv("HEADRACE_STATE", "/nowhere")
    assert headrace.push("clicks", [{"number": 1}]).records == 1
    with pytest.raises(ValueError, match="HEADRACE_TLS_CERT"):
        headrace.push("clicks", [], master="10.0.0.1:7070")

    # Another process listens at the master's address.
    monkeypatch.setattr(_master, "_PROOF_SECONDS", 300.0)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            for _ in range(1):
                connection, _ = server.accept()
                with connection:
                    heard.append(connection.recv(1000))
                    connection.sendall(b"\0" + os.urandom(64))
                    while more := connection.recv(1000):
                        heard.append(more)

        listener = threading.Thread(target=listen)
        listener.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(headrace.MasterUnavailable, match="does not know our token, so nothing was sent"):
            headrace.push("clicks", [], master=address, patience=0)
        listener.join(300)
    said = b"".join(heard)
    assert len(said) == 56  # magic, the id of the token, a nonce
    assert (state / "token").read_bytes().strip() not in said


def test_a_program_that_gives_up_ends_while_the_master_is_away(job: Any) -> None:
    start(job)
    code = """
import headrace, os, sys
p = headrace.Pusher("clicks")
t = p.begin()
print("ready", flush=True)
sys.stdin.read()
for i in range(100):
    t.push({"number": i, "user": "x" * 100})
    if i == 20:
        sys.exit(3)
"""
    child = job.trainer(code, stdin=True)
    child.printed(1)
    job.master.kill()
    job.master.wait()
    child.process.stdin.close()
    child.ended()
    assert child.process.returncode == 3


def certificates(folder: Path) -> None:
    """An authority, and three certificates that it has signed."""
    if shutil.which("openssl") is None:
        pytest.fail("openssl is missing: it makes the certificates of this test", pytrace=False)

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=ca")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in ("master", "producer", "other"):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *sign)


def test_over_tls_the_role_of_the_certificate_counts(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates(job.folder)
    state = Path(job.env["HEADRACE_STATE"])

    def settle(env: dict[str, str], name: str) -> None:
        for variable, file in (("CERT", f"{name}.crt"), ("KEY", f"{name}.key"), ("CA", "ca.crt")):
            env[f"HEADRACE_TLS_{variable}"] = str(job.folder / file)

    settle(job.env, "master")
    job.env["HEADRACE_ROLE"] = "pusher=producer"
    start(job)
    monkeypatch.setenv("HEADRACE_STATE", "/nowhere")
    monkeypatch.setenv("HEADRACE_MASTER", (state / "master.addr").read_text().strip())
    with pytest.raises(headrace.MasterUnavailable):  # the call does not use TLS
        headrace.push("clicks", [{"number": 1}], patience=0)
    for name in ("CERT", "KEY", "CA"):
        monkeypatch.setenv(f"HEADRACE_TLS_{name}", "set below")
    settle(os.environ, "other")  # type: ignore[arg-type]
    with pytest.raises(headrace.PushError, match="pusher"):
        headrace.push("clicks", [{"number": 1}])
    assert headrace.push("clicks", [{"number": 1}], token_file=str(state / "token")).records == 1
    settle(os.environ, "producer")  # type: ignore[arg-type]
    assert headrace.push("clicks", rows(0, 500)).records == 500
