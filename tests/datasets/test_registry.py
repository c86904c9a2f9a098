"""Data sets are found by name, on this machine or at their publisher; downloads resume and are verified."""

import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from graphopt.cli.main import main
from graphopt.datasets import registry
from graphopt.datasets.fetch import DownloadError, fetch
from graphopt.datasets.registry import collections, datasets, find
from graphopt.errors import OptionError

CONTENT = bytes(range(256)) * 20_000


class Publisher(http.server.BaseHTTPRequestHandler):
    """Serves files with ranges; breaks the connection where it is told to."""

    files: ClassVar[dict[str, bytes]] = {}
    break_after: ClassVar[int | None] = None
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """One file, or the rest of it."""
        content = self.files.get(self.path)
        Publisher.asked.append(self.headers.get("Range", "all"))
        if content is None:
            self.send_error(404)
            return
        start = int(self.headers["Range"][6:-1]) if "Range" in self.headers else 0
        self.send_response(206 if start else 200)
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
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def dataset(address: str, name: str = "one.bin", **fields: str) -> registry.Dataset:
    return replace(find("ladybug-49-7776"), name="one", url=f"{address}/{name}", **fields)


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


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
    path = fetch(dataset(publisher, hash=md5(CONTENT)), lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert fetch(dataset(publisher)) == path
    assert Publisher.asked == ["all"]


def test_an_interrupted_download_goes_on(publisher: str) -> None:
    Publisher.break_after = 3_000_000
    chosen = dataset(publisher, hash=md5(CONTENT))
    with pytest.raises(DownloadError):
        fetch(chosen)
    assert not chosen.destination().exists()
    Publisher.break_after = None
    assert fetch(chosen).read_bytes() == CONTENT
    assert Publisher.asked[0] == "all" and Publisher.asked[1].startswith("bytes=")


def test_a_damaged_download_is_discarded(publisher: str) -> None:
    chosen = dataset(publisher, hash=md5(b"other"))
    with pytest.raises(DownloadError, match="damaged"):
        fetch(chosen)
    assert not list(chosen.destination().parent.glob("*one*"))


def test_the_publishers_checksum_is_asked_for(publisher: str) -> None:
    Publisher.files["/one.md5"] = md5(b"other")[4:].encode() + b"  one.bin\n"
    with pytest.raises(DownloadError, match="damaged"):
        fetch(dataset(publisher, hash_url=f"{publisher}/one.md5"))
    Publisher.files["/one.md5"] = md5(CONTENT)[4:].encode()
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
    assert main(["datasets", "path", "MH_01"]) == 1
    assert "datasets fetch MH_01_easy" in capsys.readouterr().err
    assert main(["datasets", "fetch", "nosuchthing"]) == 2
    assert main(["datasets", "lits"]) == 2
    assert "Did you mean" in capsys.readouterr().err
