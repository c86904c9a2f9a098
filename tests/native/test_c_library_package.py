"""What the C library installs: a header for C, few symbols, pkg-config; threads on graphs of their own."""

from __future__ import annotations

import shutil
import threading

import pytest
from c_library import Handle, run

from graphopt.cli.main import main


def test_the_header_is_c(installed, tmp_path):
    """Compiled by a C compiler, all warnings errors."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "program.c"
    source.write_text(
        "#include <graphopt/graphopt.h>\nint main(void) { return graphopt_num_threads() < 1; }\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{installed / 'include'}"]
    (library,) = installed.glob("lib*/**/libgraphopt.so")
    run("cc", *flags, source, library, f"-Wl,-rpath,{library.parent}", "-o", tmp_path / "program")
    run(tmp_path / "program")


def test_only_the_interface_is_visible(installed):
    """Symbols with a version; nothing of the parts that the library is made of."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    (library,) = installed.glob("lib*/**/libgraphopt.so")
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    names = [line.split()[-1] for line in lines if " T " in line]
    declared = (installed / "include/graphopt/graphopt.h").read_text()
    assert names
    for name in names:
        assert name.endswith("@@GRAPHOPT_0") and f"{name.split('@')[0]}(" in declared
    assert not [line for line in lines if " A " not in line and " T " not in line]


def test_pkg_config(installed):
    """The file names the folders of the installation."""
    (path,) = installed.glob("lib*/**/graphopt.pc")
    text = path.read_text()
    assert "Libs: -L${libdir} -lgraphopt" in text and "@" not in text


def test_threads_on_graphs_of_their_own(library, tmp_path):
    """Four at once reach what one alone reaches, and each has its own last error."""
    path = tmp_path / "sphere.g2o"
    assert main(["generate", "sphere", "--nodes-per-level", "10", "--laps", "5", "-o", str(path)]) == 0

    def work(k: int, found: dict) -> None:
        handle = Handle(library)
        handle.done("graph_read", path)
        chi2 = handle.optimize(max_num_iterations=8)[1]
        assert handle.call("graph_read", f"/no/such/file{k}") == 5
        found[k] = chi2, handle.error()

    alone: dict = {}
    work(0, alone)
    together: dict = {}
    threads = [threading.Thread(target=work, args=(k, together)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(together) == [0, 1, 2, 3]
    for k, (chi2, error) in together.items():
        assert chi2 == alone[0][0] and f"/no/such/file{k}:" in error
