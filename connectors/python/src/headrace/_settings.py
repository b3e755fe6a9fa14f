"""Finds out rank, world size and the rest: from arguments, else HEADRACE_*, else the
launcher's variables. The job may also stand in ./headrace.yaml, as for the command."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_SOCKET_PATH = 107  # bytes; the kernel's limit for a Unix socket
MAX_RANKS = 2**31

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Settings:
    """The settings that init() found."""

    job: str  # "": whatever the agent serves
    agent: str  # path of the agent's socket
    master: str | None  # only for what an error advises
    rank: int
    world_size: int
    local_rank: int
    attempt: int
    resume: str = ""  # what a process of a job with a past wants: "", "bound", "acked" or "start"


RESUME = ("", "bound", "acked", "start")


def resolve(
    job: str | None = None,
    *,
    master: str | None = None,
    agent: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    resume: str | None = None,
    env: Environment | None = None,
) -> Settings:
    """Arguments, else HEADRACE_*, else torchrun's variables, else 0 of 1. Where nobody names
    the job or the agent's socket, the job is the one of ./headrace.yaml.

    Raises ValueError that names the variable or the argument.
    """
    env = os.environ if env is None else env
    check_names(env)
    if job is None:
        job = env.get("HEADRACE_JOB") or ""
        if not job and agent is None and not env.get("HEADRACE_AGENT"):
            job = job_of_folder()
    ranks = _number("rank", rank, env, "HEADRACE_RANK", "RANK", default=0)
    world = _number("world_size", world_size, env, "HEADRACE_WORLD_SIZE", "WORLD_SIZE", default=1)
    if ranks >= world:
        raise ValueError(
            f"rank {ranks} of world size {world}: ranks count from 0; "
            "set both rank and world_size, or HEADRACE_RANK and HEADRACE_WORLD_SIZE"
        )
    path = agent if agent is not None else env.get("HEADRACE_AGENT") or default_socket(job, env)
    if path.startswith("unix:"):
        path = path[len("unix:") :]
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise ValueError(
            f"agent socket {path} has {len(os.fsencode(path))} bytes; a Unix socket may have {MAX_SOCKET_PATH}: "
            "set HEADRACE_AGENT (and the agent's --socket) to a shorter path"
        )
    origin, resume = ("resume", resume) if resume is not None else ("HEADRACE_RESUME", env.get("HEADRACE_RESUME", ""))
    if resume not in RESUME:
        raise ValueError(f"{origin}={resume!r}; it is bound, acked or start")
    return Settings(
        job=job,
        agent=path,
        master=master if master is not None else env.get("HEADRACE_MASTER") or None,
        rank=ranks,
        world_size=world,
        local_rank=_number("local rank", None, env, "HEADRACE_LOCAL_RANK", "LOCAL_RANK", default=0),
        resume=resume,
        attempt=_number("attempt", attempt, env, "HEADRACE_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", default=0),
    )


SETTINGS_FILE = "headrace.yaml"
_KEY = re.compile(r"""(?:job|"job"|'job')\s*:(?:\s|$)""")
_JOB = re.compile(r"""\S+?\s*:\s+(["']?)([A-Za-z0-9][A-Za-z0-9._-]{0,62})\1\s*(?:\s#.*)?""")


def job_of_folder(path: str = SETTINGS_FILE) -> str:
    """The job that the settings file of the current folder names; "": none.

    It reads one key and no more of YAML: a line `job: NAME` that is not indented. Raises
    ValueError, and never takes another job, if the file may name one in another form.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): correct it, or set HEADRACE_JOB") from None
    jobs = []
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}: {line.strip()}"
        if line.startswith(("{", "?", "&", "!", "--- ")):
            raise ValueError(f"{where}: only lines of `name: value` are read: write `job: NAME`, or set HEADRACE_JOB")
        if not _KEY.match(line):
            continue
        found = _JOB.fullmatch(line)
        if found is None:
            raise ValueError(
                f"{where}: not a job's name: write `job: NAME` in one line, with letters, digits, dot, dash and "
                "underscore, or set HEADRACE_JOB"
            )
        jobs.append(found[2])
    if len(jobs) > 1:
        raise ValueError(f"{path} names {len(jobs)} jobs, {' and '.join(jobs)}: leave one, or set HEADRACE_JOB")
    return jobs[0] if jobs else ""


# Every variable that the package or the command reads.
_KNOWN = (
    "AGENT",
    "ALLOW_BROKER",
    "ALLOW_ROOT",
    "ATTEMPT",
    "BIN",
    "BUFFER",
    "CACHE",
    "ENDED_BY",
    "HTTP",
    "JOB",
    "LANDING_CONNECTION",
    "LANDING_STORAGE",
    "LISTEN",
    "LOCAL_RANK",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "LOST_AFTER",
    "MASTER",
    "MEMORY_DIR",
    "METRICS",
    "MODEL",
    "NAME",
    "OUTPUT",
    "PEER_LISTEN",
    "PYTHON",
    "RANK",
    "REPLICAS",
    "REPLICA_BANDWIDTH",
    "RESUME",
    "ROLE",
    "ROLE_TOKEN",
    "RUN",
    "SEED",
    "SESSION_TTL",
    "SHARED_FRAMES",
    "STATE",
    "TLS_CA",
    "TLS_CERT",
    "TLS_KEY",
    "TOKEN",
    "TOKEN_FILE",
    "WORLD_SIZE",
)


def check_names(env: Environment) -> None:
    """Raises ValueError of a variable that is not ours and looks like one of ours."""
    for variable in env:
        prefix, ours, name = variable.partition("HEADRACE_")
        if prefix or not ours or name in _KNOWN:
            continue
        if name == "SOCKET":  # the one setting whose variable is not named after it
            raise ValueError(f"{variable} is no variable of Headrace: did you mean HEADRACE_AGENT?")
        near = [n for n in difflib.get_close_matches(name, _KNOWN, 3, 0.75) if abs(len(n) - len(name)) <= 2]
        if near:
            raise ValueError(f"{variable} is no variable of Headrace: did you mean HEADRACE_{near[0]}?")


def agents_beside(socket: str) -> list[str]:
    """The jobs whose agents have a socket in the same folder, without that one."""
    folder, own = os.path.split(socket)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [n[: -len(".sock")] for n in names if n.endswith(".sock") and n != own]


def default_socket(job: str, env: Environment) -> str:
    """Where the agent of a job listens when nobody says otherwise."""
    name = f"{job or 'default'}.sock"
    runtime = env.get("XDG_RUNTIME_DIR")
    folder = os.path.join(runtime, "headrace") if runtime else f"/tmp/headrace-{os.getuid()}"
    return os.path.join(folder, name)


def _number(name: str, given: int | None, env: Environment, *variables: str, default: int) -> int:
    value, origin = given, name
    if value is None:
        for variable in variables:
            if env.get(variable, "") != "":
                origin = variable
                try:
                    value = int(env[variable])
                except ValueError:
                    raise ValueError(f"{variable}={env[variable]!r} is not a whole number") from None
                break
        else:
            return default
    if not 0 <= value < MAX_RANKS:
        raise ValueError(f"{origin} is {value}; it must lie in 0..{MAX_RANKS - 1}")
    return value
