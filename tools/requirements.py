"""What the package needs with some extras, one requirement a line, without building it.

    python tools/requirements.py test oracle > requirements.txt

Extras of the package that an extra names are followed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import pip._vendor.tomli as tomllib


def requirements(project: dict[str, Any], extras: list[str]) -> list[str]:
    """Those of the package and of its extras, and of extras that these name."""
    found = list(project["dependencies"])
    waiting, seen = list(extras), set()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for each in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[([^]]*)\]", each)
            if own:
                waiting += own[1].split(",")
            else:
                found.append(each)
    return sorted(set(found))


if __name__ == "__main__":
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text()
    print("\n".join(requirements(tomllib.loads(text)["project"], sys.argv[1:])))
