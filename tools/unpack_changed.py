"""Unpack a .tar.gz over an earlier copy: python tools/unpack_changed.py ARCHIVE FOLDER.

Files that did not change keep their time stamps, so that a build there goes on where it stood; files that the
archive does not have any more are removed. The archive's own top folder is left out.
"""

import sys
import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Make `folder` hold what `archive` holds."""
    present = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile():
                continue
            path = folder.joinpath(*Path(member.name).parts[1:])
            present.add(path)
            content = tar.extractfile(member).read()  # type: ignore[union-attr]
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(member.mode)
    for path in folder.rglob("*"):
        if path.is_file() and path not in present:
            path.unlink()


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
