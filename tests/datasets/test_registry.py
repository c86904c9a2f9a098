"""Data sets are found by name, on this machine or at their publisher; downloads resume and are verified."""

import bz2
import fcntl
import gzip
import hashlib
import http.server
import io
import lzma
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate.datasets import registry
from graphopt.evaluate.datasets.fetch import DownloadError, fetch
from graphopt.evaluate.datasets.registry import collections, datasets, find

CONTENT = bytes(range(256)) * 20_000


class Publisher(http.server.BaseHTTPRequestHandler):
    """Serves files with ranges; breaks the connection where it is told to."""

    files: ClassVar[dict[str, bytes]] = {}
    states_version: ClassVar[bool] = True
    break_after: ClassVar[int | None] = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """One file, or the rest of it."""
        content = self.files.get(self.path)
        Publisher.asked.append(self.headers.get("Range", "all"))
        if content is None:
            self.send_error(404)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = int(self.headers["Range"][6:-1]) if self.headers.get("If-Range") == tag else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.states_version:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) if Publisher.break_after is None else Publisher.break_after
        self.wfile.write(content[start:end])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHOPT_DATA", raising=False)
    registry._present.cache_clear()
    Publisher.files, Publisher.break_after, Publisher.asked = {"/one.bin": CONTENT}, None, []
    Publisher.states_version = True
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def dataset(address: str, name: str = "one.bin", **fields: str) -> registry.Dataset:
    return replace(find("ladybug-49-7776"), name="one", url=f"{address}/{name}", **fields)


def test_every_entry_has_what_users_need() -> None:
    assert {"bal", "euroc", "tumvi", "kitti", "pose-graphs", "colmap"} <= collections().keys()
    assert sum(each_dataset.collection.name == "bal" for each_dataset in datasets().values()) == 98
    for dataset in datasets().values():
        assert dataset.url.startswith("http") and "{" not in dataset.url + dataset.name
        assert dataset.collection.licence and dataset.collection.citation and dataset.collection.homepage


def test_names_may_be_short_but_not_ambiguous() -> None:
    assert find("ladybug-49").name == "ladybug-49-7776"
    assert find("MH_01").name == "MH_01_easy"
    assert find("problem-21-11315-pre.txt").name == "trafalgar-21-11315"
    with pytest.raises(OptionError, match="may be any of"):
        find("ladybug")
    with pytest.raises(OptionError, match="Did you mean sphere2500"):
        find("sphere250")


def test_copies_are_found_below_graphopt_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GRAPHOPT_DATA", str(tmp_path / "data"))
    with pytest.raises(OptionError, match="no folder"):
        find("intel").path()
    deep = tmp_path / "data" / "some" / "where"
    deep.mkdir(parents=True)
    registry._present.cache_clear()
    assert find("intel").path() is None
    (deep / "problem-49-7776-pre.txt.xz").write_bytes(b"x")
    (deep / "MH_01_easy").mkdir()
    registry._present.cache_clear()
    assert find("ladybug-49").path() == deep / "problem-49-7776-pre.txt.xz"
    assert find("MH_01").path() == deep / "MH_01_easy"


def test_a_download_is_verified_and_kept(publisher: str) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(dataset(publisher), lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert fetch(dataset(publisher)) == path
    assert Publisher.asked == ["all"]


def test_an_interrupted_download_goes_on(publisher: str) -> None:
    Publisher.break_after = 3_000_000
    chosen = dataset(publisher)
    with pytest.raises(DownloadError):
        fetch(chosen)
    assert not chosen.destination().exists()
    Publisher.break_after = None
    assert fetch(chosen).read_bytes() == CONTENT
    assert Publisher.asked[0] == "all" and Publisher.asked[1].startswith("bytes=")
    assert len(list(chosen.destination().parent.iterdir())) == 2  # and the checksum


@pytest.mark.parametrize("states_version", [True, False])
def test_two_versions_are_not_glued(publisher: str, states_version: bool) -> None:
    """The file changes between a broken download and the next: the whole new one is there then."""
    Publisher.break_after, Publisher.states_version = 3_000_000, states_version
    with pytest.raises(DownloadError, match="3000000"):
        fetch(dataset(publisher))
    Publisher.files["/one.bin"], Publisher.break_after = bytes(reversed(CONTENT)), None
    assert fetch(dataset(publisher)).read_bytes() == bytes(reversed(CONTENT))


def test_two_processes_do_not_fetch_one_file_at_once(publisher: str) -> None:
    chosen = dataset(publisher)
    chosen.destination().parent.mkdir(parents=True)
    with chosen.destination().with_name("one.bin.part").open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another process is fetching it"):
            fetch(chosen)
    assert fetch(chosen).read_bytes() == CONTENT


def test_later_downloads_have_to_match_the_first(publisher: str) -> None:
    chosen = dataset(publisher)
    assert chosen.verification().startswith("not verified (the publisher states no checksum")
    fetch(chosen).unlink()
    checksum = hashlib.sha256(CONTENT).hexdigest()
    assert chosen.checksum_file().read_text() == f"{checksum}  one.bin\n"
    assert "not verified by the publisher" in chosen.verification() and checksum in chosen.verification()
    Publisher.files["/one.bin"] = CONTENT + b"x"
    with pytest.raises(DownloadError, match=r"differs from the first .*one\.bin\.sha256.*remove that file"):
        fetch(chosen)
    assert not chosen.destination().exists()
    chosen.checksum_file().unlink()
    assert fetch(chosen).read_bytes() == CONTENT + b"x"
    chosen.destination().unlink()
    chosen.checksum_file().write_text("nothing")
    with pytest.raises(OptionError, match="expected 64 hexadecimal digits"):
        fetch(chosen)


def test_the_publishers_checksum_is_asked_for(publisher: str) -> None:
    Publisher.files["/one.md5"] = hashlib.md5(b"other").hexdigest().encode() + b"  one.bin\n"
    chosen = dataset(publisher, hash_url=f"{publisher}/one.md5")
    with pytest.raises(DownloadError, match="does not match the publisher's checksum"):
        fetch(chosen)
    assert not list(chosen.destination().parent.glob("*one*"))
    Publisher.files["/one.md5"] = hashlib.md5(CONTENT).hexdigest().encode()
    assert fetch(dataset(publisher, hash_url=f"{publisher}/one.md5")).read_bytes() == CONTENT


def test_archives_are_unpacked_whole_or_not_at_all(publisher: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("mav0/imu0/data.csv", "1,2,3\n")
    Publisher.files["/good.zip"] = (tmp_path / "a.zip").read_bytes()
    folder = fetch(dataset(publisher, "good.zip"))
    assert (folder / "mav0" / "imu0" / "data.csv").read_text() == "1,2,3\n"
    Publisher.files["/bad.zip"] = b"no archive"
    bad = dataset(publisher, "bad.zip")
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        fetch(bad)
    assert not bad.destination().exists()


def tar_of(**members: tarfile.TarInfo | bytes) -> bytes:
    """A tar archive; members: content, or a TarInfo without one."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, member in members.items():
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(name)
            content = member if isinstance(member, bytes) else b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o4777
    return info


@pytest.mark.parametrize("has_filter", [True, False])
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": member("../outside")}, "leads out of the folder"),
        ({"a": member("in/../../outside")}, "leads out of the folder"),
        ({"a": member("{there}/outside")}, "leads out of the folder"),
        ({"a": member("link", tarfile.SYMTYPE, ".."), "b": member("link/outside")}, "neither a file nor"),
        ({"a": member("link", tarfile.LNKTYPE, "../outside")}, "neither a file nor"),
        ({"a": member("pipe", tarfile.FIFOTYPE)}, "neither a file nor"),
    ],
)
def test_archives_stay_in_their_folder(
    publisher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members, message: str, has_filter: bool
) -> None:
    """Also where `tarfile` has no filters: Python 3.10 and 3.11 of before 2023."""
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    for info in members.values():
        info.name = info.name.replace("{there}", str(tmp_path))
    Publisher.files["/bad.tar"] = tar_of(**members)
    bad = dataset(publisher, "bad.tar")
    with pytest.raises(DownloadError, match=message):
        fetch(bad)
    assert not list(tmp_path.rglob("outside")) and not bad.destination().exists()
    assert not bad.checksum_file().exists()
    Publisher.files["/good.tar"] = tar_of(**{"in/a": b"content"}, b=member("in/b"))
    folder = fetch(dataset(publisher, "good.tar"))
    assert (folder / "in" / "a").read_bytes() == b"content"
    assert (folder / "in" / "b").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize(("suffix", "module"), [("gz", gzip), ("xz", lzma), ("bz2", bz2)])
def test_damaged_archives_are_refused(publisher: str, suffix: str, module) -> None:
    """Cut short, or with other bytes inside: nothing of them is taken, and the error says what to do."""
    content = np.random.default_rng(0).bytes(40_000)
    packed = module.compress(tar_of(a=content, b=content[::-1]))
    turned = bytearray(packed)
    turned[len(packed) // 2] ^= 4
    for name, damaged in (("cut", packed[: len(packed) // 2]), ("turned", bytes(turned))):
        Publisher.files[f"/{name}-{suffix}.tar"] = damaged
        bad = dataset(publisher, f"{name}-{suffix}.tar")
        with pytest.raises(DownloadError, match="cannot be unpacked"):
            fetch(bad)
        assert not bad.destination().exists() and not bad.checksum_file().exists()


def test_zip_archives_stay_in_their_folder(publisher: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("../outside", "x")
    Publisher.files["/bad.zip"] = (tmp_path / "a.zip").read_bytes()
    with pytest.raises(DownloadError, match=r"'\.\./outside' leads out of the folder"):
        fetch(dataset(publisher, "bad.zip"))
    assert not list(tmp_path.rglob("outside"))


def test_without_a_network_it_says_where_to_put_the_file(publisher: str) -> None:
    with pytest.raises(DownloadError, match="put it at"):
        fetch(dataset("http://127.0.0.1:9"))
    with pytest.raises(DownloadError, match="404"):
        fetch(dataset(publisher, "missing.bin"))


def test_commands(publisher: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["datasets", "list", "euroc"]) == 0
    assert "MH_01_easy" in capsys.readouterr().out
    assert main(["datasets", "info", "bal"]) == 0
    assert "Agarwal" in capsys.readouterr().out
    assert main(["datasets", "info", "MH_01"]) == 0
    assert "not verified" in capsys.readouterr().out
    assert main(["datasets", "path", "MH_01"]) == 1
    assert "datasets fetch MH_01_easy" in capsys.readouterr().err
    assert main(["datasets", "fetch", "nosuchthing"]) == 2
    assert main(["datasets", "lits"]) == 2
    assert "Did you mean" in capsys.readouterr().err
