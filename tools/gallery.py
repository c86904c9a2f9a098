"""Draw the pictures of docs/gallery.md: python tools/gallery.py FOLDER.

Each example that writes a picture is run on the data that it makes, on the CPU, with the installed package.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"


def pictures() -> list[str]:
    """Examples whose pictures the page shows."""
    return sorted(set(re.findall(r"\(gallery/(\w+)\.png\)", PAGE.read_text(encoding="utf-8"))))


def main(folder: str) -> int:
    """Return the number of examples that failed."""
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "MPLBACKEND": "agg"}
    failed = 0
    for name in pictures():
        script, out = ROOT / "examples" / f"{name}.py", target / f"{name}.png"
        command = [sys.executable, str(script), "--device", "cpu", "-o", str(out)]
        done = subprocess.run(command, env=environment, cwd=target, capture_output=True, text=True)
        failed += done.returncode != 0
        print(f"{name}: {'drawn' if done.returncode == 0 else done.stderr.strip()}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
