"""Run a command in a terminal of its own and draw what it shows at the end as SVG.

    python docs/record.py docs/quickstart.svg -- build/headrace demo

The picture is of a real run: nothing is edited. Lines that were repainted (live
progress) show as they were last.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from html import escape
from pathlib import Path

COLUMNS, LINE, CHAR, MARGIN = 120, 17, 7.25, 18
HOME = str(Path(__file__).resolve().parent.parent)


def capture(command: list[str]) -> str:
    """What the command writes to a terminal, also shown here."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = bytearray()
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the terminal's last writer is gone
                break
            if not chunk:
                break
            seen += chunk
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"the command ended with exit status {process.returncode}; no picture was drawn")
    return seen.decode()


def screen(text: str) -> list[str]:
    """The lines as they are after all repainting."""
    lines = []
    for raw in text.replace("\r\n", "\n").split("\n"):
        shown = raw.split("\r\x1b[K")[-1]
        lines.append(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown).replace(HOME + "/", ""))
    while lines and not lines[-1]:
        lines.pop()
    wrapped = []
    for line in lines:
        wrapped += [line[i : i + COLUMNS] for i in range(0, max(len(line), 1), COLUMNS)]
    return wrapped


def colour(line: str) -> str:
    if "SIGKILL" in line:
        return "#ff8f80"
    if re.match(r"\[ *[0-9.]+ s\]", line):
        return "#d6dde6"
    return "#8fd6a0" if line.startswith("  ") else "#ffd479"


def draw(lines: list[str]) -> str:
    width, height = round(COLUMNS * CHAR + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="A run of the quick start">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b2129"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="12">',
    ]
    for number, line in enumerate(lines):
        y = MARGIN + (number + 0.8) * LINE
        length = f' textLength="{len(line) * CHAR:.1f}" lengthAdjust="spacingAndGlyphs"' if line else ""
        out.append(
            f'<text x="{MARGIN}" y="{y:.1f}" fill="{colour(line)}" xml:space="preserve"{length}>'
            f"{escape(line)}</text>"
        )
    return "\n".join([*out, "</g>", "</svg>", ""])


def main() -> int:
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    command = sys.argv[3:]
    lines = ["$ " + " ".join(command), *screen(capture(command))]
    Path(sys.argv[1]).write_text(draw(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
