"""What a wheel's modules ask of the machine, python tools/wheel_symbols.py WHEEL: fails if more than glibc.

auditwheel sees versions of symbols. A symbol of a newer glibc that the linker found nowhere has none, and
fails only where the module is loaded: such a symbol is refused here.
"""

import io
import sys
import zipfile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

GLIBC = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2")
WEAK_OR_OPTIONAL = "STB_WEAK"


def complaints(name: str, elf: ELFFile) -> list[str]:
    """Libraries beside glibc, and symbols that nobody promises, of one module."""
    sections = list(elf.iter_sections())
    dynamic = next(section for section in sections if isinstance(section, DynamicSection))
    needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]  # type: ignore[attr-defined]
    sentences = [f"{name} needs {library}" for library in needed if library not in GLIBC]
    versions = next(section for section in sections if isinstance(section, GNUVerSymSection))
    table = next(
        section
        for section in sections
        if isinstance(section, SymbolTableSection) and section.name == ".dynsym"
    )
    for number, symbol in enumerate(table.iter_symbols()):
        undefined = symbol["st_shndx"] == "SHN_UNDEF" and symbol.name
        weak = symbol["st_info"]["bind"] == WEAK_OR_OPTIONAL
        bare = versions.get_symbol(number)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")
        if undefined and bare and not weak and not symbol.name.startswith(("Py", "_Py")):
            sentences.append(f"{name} asks for {symbol.name}, which no library promises")
    return sentences


def main(wheel: str) -> int:
    """Print every complaint; 1 if there is one."""
    sentences = []
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.endswith(".so") or ".so." in name:
                sentences += complaints(name, ELFFile(io.BytesIO(files.read(name))))
    print("\n".join(sentences) or f"{wheel}: nothing but glibc is needed")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
