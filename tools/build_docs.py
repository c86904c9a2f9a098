"""Build the documentation site: python tools/build_docs.py FOLDER.

Notebooks are executed; a link or anchor that leads nowhere, a page that is not in the navigation, and every
other warning of mkdocs end the build (`mkdocs.yml`).
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(folder: str) -> int:
    """Return mkdocs' status."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-d", folder]
    status = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if status == 0:
        pages = len(list(Path(ROOT, folder).rglob("*.html")))
        print(f"{pages} pages in {folder}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
