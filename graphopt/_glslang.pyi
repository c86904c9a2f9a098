"""glslang in process (native/bindings/glslang.cpp); see graphopt.pyglslang."""

from collections.abc import Mapping, Sequence

def version() -> str: ...
def compile(
    source: str, name: str, folders: Sequence[str], defines: Mapping[str, str]
) -> tuple[bytes, str]: ...
