"""Drop-in for the g2o Python bindings.

    import graphopt.g2o as g2o        # instead of: import g2o  /  import g2opy as g2o

runs programs written for g2opy 2.3.0, g2o-python 0.0.12 and uoip/g2opy. `install_as("g2o")` makes a plain
`import g2o` find this module, for programs that cannot be changed. docs/g2o.md says what is different.
"""

from __future__ import annotations

import sys

from graphopt.g2o import contrib, names
from graphopt.g2o.names import *  # noqa: F403 - names.__all__, spelled out there

g2opy = sys.modules[__name__]

__all__ = ["install_as"]
__all__ += names.__all__


def install_as(name: str = "g2o") -> None:
    """Let `import <name>` find this module from now on: `install_as("g2o")`, `install_as("g2opy")`.

    So do `import <name>.g2opy` and `from <name> import g2opy`, the extension module inside the bindings, and
    `from <name>.contrib import SmoothEstimatePropagator`, of uoip/g2opy.
    """
    sys.modules[name] = sys.modules[f"{name}.g2opy"] = sys.modules[__name__]
    sys.modules[f"{name}.contrib"] = contrib
