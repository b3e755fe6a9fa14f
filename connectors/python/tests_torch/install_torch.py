"""Installs torch for the tests, for the CPU, without the 3 GB of CUDA packages.

    python install_torch.py            installs, if that is not done; prints the Python to use
    python install_torch.py --force    again

torch's wheel on PyPI links to the CUDA libraries, which its dependencies bring. Here
torch is installed alone, and gcc makes a small stub for each library that is missing:
it holds the symbols that torch wants, and each answers 100, which means "no device". So
torch imports, and `torch.cuda.is_available()` is False. That is good enough for tests of
this version of torch and for nothing else: do not use it to train.

The environment lies outside the tree, in $HEADRACE_CACHE or ~/.cache/headrace, in a folder
named after the versions of torch and Python. It is made again when the list of packages
or this program changes.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "requirements.txt"
TOOLS = ("gcc", "readelf")
NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE

Symbols = dict[str, dict[str, set[str]]]  # of a library: version -> names


def say(text: str) -> None:
    print(f"torch for tests: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"torch for tests: {' '.join(map(str, command[:6]))} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def torch_version() -> str:
    found = re.search(r"^torch==(\S+)$", PACKAGES.read_text(), re.MULTILINE)
    if found is None:
        sys.exit(f"torch for tests: {PACKAGES} pins no torch")
    return found.group(1)


# The libraries and symbols that torch's own libraries need and this machine does not have.


def needed(library: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-dW", library))


def is_here(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def versions_of(library: Path) -> dict[str, str]:
    """Version name -> the library that it is wanted from."""
    versions: dict[str, str] = {}
    file = ""
    for line in run("readelf", "-VW", library).splitlines():
        if found := re.search(r"File: (\S+)", line):
            file = found.group(1)
        elif file and (found := re.search(r"Name: (\S+)", line)):
            versions[found.group(1)] = file
    return versions


def symbols_of(library: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """Names that it defines, and (name, version) that it wants; the version may be empty."""
    defined: set[str] = set()
    wanted: set[tuple[str, str]] = set()
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":"):
            continue
        name, _, version = fields[7].partition("@")
        if fields[6] == "UND":
            wanted.add((name, version.lstrip("@")))
        else:
            defined.add(name)
    return defined, wanted


def what_is_missing(libraries: Iterable[Path]) -> Symbols:
    libraries = list(libraries)
    own = {library.name for library in libraries}
    missing = sorted({n for library in libraries for n in needed(library) if n not in own and not is_here(n)})
    stubs: Symbols = {soname: defaultdict(set) for soname in missing}
    defined: set[str] = set()
    loose: set[str] = set()
    for library in libraries:
        has, wants = symbols_of(library)
        defined |= has
        versions = versions_of(library)
        for name, version in wants:
            if not version and re.match(r"(cu|CU|nccl|nv)", name):
                loose.add(name)
            elif versions.get(version) in stubs:
                stubs[versions[version]][version].add(name)
    if missing:
        stubs[missing[0]][""] |= loose - defined  # the linker looks at all of them
    return stubs


def make_stub(folder: Path, soname: str, versions: dict[str, set[str]]) -> None:
    code, script = [], []
    for version, names in sorted(versions.items()):
        code += [f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in sorted(names)]
        if version:
            script.append(f"{version} {{ global: {' '.join(f'{n};' for n in sorted(names))} }};")
    source, exports = folder / f"{soname}.c", folder / f"{soname}.map"
    source.write_text("\n".join(code) + "\n")
    exports.write_text("\n".join(script) + "\n")
    more = [f"-Wl,--version-script={exports}"] if script else []
    options = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", *more]
    run("gcc", *options, "-o", folder / soname, source)
    source.unlink()
    exports.unlink()


def make_stubs(folder: Path) -> int:
    """Beside the libraries of torch, where these look first."""
    stubs = what_is_missing(sorted(folder.glob("*.so*")))
    for soname, versions in stubs.items():
        make_stub(folder, soname, versions)
    return len(stubs)


# The environment.


def install(home: Path) -> None:
    for tool in TOOLS:
        if shutil.which(tool) is None:
            sys.exit(f"torch for tests: {tool} is missing: install gcc and binutils (Debian: apt install gcc binutils)")
    began = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    say(f"making {home}")
    run(sys.executable, "-m", "venv", home)
    say(f"installing {PACKAGES.name}: torch {torch_version()} is a download of 540 MB")
    run(home / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        "--no-compile", "-r", PACKAGES)  # fmt: skip
    folder = Path(run(home / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    count = make_stubs(folder / "torch" / "lib")
    say(f"{count} stubs stand for the CUDA libraries")
    check = "import torch; assert not torch.cuda.is_available(); print(torch.ones(2).sum().item())"
    if run(home / "bin" / "python", "-c", check).strip() != "2.0":
        sys.exit("torch for tests: it imports and does not add up")
    say(f"ready after {time.monotonic() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="install again")
    args = parser.parse_args()
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    home = cache / f"torch-{torch_version()}-py{sys.version_info[0]}.{sys.version_info[1]}"
    cache.mkdir(parents=True, exist_ok=True)
    want = hashlib.sha256(PACKAGES.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    ready = home / ".ready"
    with open(cache / f"{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if args.force or not ready.exists() or ready.read_text() != want:
            install(home)
            ready.write_text(want)
    print(home / "bin" / "python")


if __name__ == "__main__":
    main()
