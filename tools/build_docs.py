"""Build the documentation site: python tools/build_docs.py FOLDER.

Notebooks are executed side by side, in a copy of the pages; a link or anchor that leads nowhere, a page
that is not in the navigation, and every other warning of mkdocs end the build (`mkdocs.yml`).
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 60
"""Of a cell."""


def execute(path: Path) -> str:
    """Run a notebook and keep what it shows; `CellExecutionError` where a cell fails."""
    start = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}  # with the installed package, not this source tree
    NotebookClient(notebook, timeout=MOST_SECONDS, resources=where).execute()
    nbformat.write(notebook, path)
    return f"{path.name} {time.perf_counter() - start:.1f} s"


def main(folder: str) -> int:
    """Return mkdocs' status."""
    pages = ROOT / "build" / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        print(*pool.map(execute, sorted((pages / "notebooks").glob("*.ipynb"))), sep=", ")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    environment["GRAPHOPT_DOCS"] = str(pages)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-d", str(ROOT / folder)]
    status = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if status == 0:
        print(f"{len(list(Path(ROOT, folder).rglob('*.html')))} pages in {folder}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
