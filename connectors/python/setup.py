"""A wheel of one platform: it carries the `headrace` binary, and no Python of ours
depends on the interpreter's version.

The binary is built without cgo and links to nothing, so it runs on every Linux of
its architecture, glibc or musl. `make wheel` puts it into src/headrace/bin first.
"""

from __future__ import annotations

import platform
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

BINARY = Path(__file__).parent / "src" / "headrace" / "bin" / "headrace"


class PlatformWheel(bdist_wheel):
    """py3-none-<platform> when the binary is there, else an ordinary pure wheel."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not BINARY.exists()

    def get_tag(self) -> tuple[str, str, str]:
        if self.root_is_pure:
            return super().get_tag()
        arch = platform.machine()
        return "py3", "none", f"manylinux_2_17_{arch}.manylinux2014_{arch}.musllinux_1_1_{arch}"


setup(cmdclass={"bdist_wheel": PlatformWheel})
