"""Text models of COLMAP read in parts: wherever pieces are cut, the model of the whole; errors name lines."""

import numpy as np
import pytest

from graphopt import io
from graphopt.distributed import lines, reading, reading_colmap, reading_colmap_text
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.errors import FormatError, OptionError
from graphopt.io.colmap import text
from graphopt.io.colmap.lines import expects_keypoints
from tests.io.test_colmap_rigs import rig_model

IMAGES = b"""# Image list

1 1 0 0 0 0 0 0 1 a.png
1 2 5 3 4 -1
2 1 0 0 0 0 0 1 1 2 3 4

   # not a comment of its own: the line of an image is next
3 1 0 0 0 0 0 2 1 1 2
# keypoints that say nothing

4 1 0 0 0 0 0 3 1 b c.png
7 8 5 9 10 5 11 12 -1
"""
POINTS = b"""# Points

5 0 0 9 1 2 3 0.5 1 0 4 1 4 0

6 1 1 9 1 2 3 0.5 4 2
"""


def model_of(tmp_path, images=IMAGES, points=POINTS, end=b""):
    """A folder with names that look like numbers, empty lines, comments."""
    (tmp_path / "cameras.txt").write_bytes(b"1 PINHOLE 640 480 500 500 320 240\n")
    (tmp_path / "images.txt").write_bytes(images + end)
    (tmp_path / "points3D.txt").write_bytes(points + end)
    return tmp_path


@pytest.mark.parametrize("num_ranks", [*range(1, 9), 40])
def test_images_wherever_pieces_are_cut(tmp_path, num_ranks):
    """The second line of an image may be empty, or look like a comment or like a first one."""
    folder = model_of(tmp_path)
    expected = text.parse_images(IMAGES, "")

    def work(comm):
        return reading_colmap_text._own_images(folder / "images.txt", comm)

    found = run_as_threads(num_ranks, work)
    assert (
        [name for piece in found for name in piece.names]
        == expected.names
        == ["a.png", "2 3 4", "1 2", "b c.png"]
    )
    assert np.array_equal(np.concatenate([piece.ids for piece in found]), expected.ids)
    assert np.array_equal(np.concatenate([piece.xy for piece in found]), expected.xy)
    assert np.array_equal(np.concatenate([np.diff(piece.keypoint_start) for piece in found]), [2, 0, 0, 3])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("cut", [0, 1])
def test_keypoints_of_tracks_come_from_whoever_read_them(tmp_path, num_ranks, cut):
    """Also where the files end without a line end."""
    folder = model_of(tmp_path, IMAGES[: len(IMAGES) - cut], POINTS[: len(POINTS) - cut])

    def work(comm):
        points, first, count = reading_colmap._own_points(folder / "points3D.txt", comm)
        images, track = reading_colmap_text.read_images(folder / "images.txt", comm, points.track)
        rows = np.searchsorted(images.ids, track[:, 0])
        assert images.ids.tolist() == [1, 2, 3, 4] and count == 2
        return first, images.xy[images.keypoint_start[rows] + track[:, 1]], points.ids

    found = run_as_threads(num_ranks, work)
    assert np.concatenate([xy for _, xy, _ in found]).tolist() == [[1, 2], [9, 10], [7, 8], [11, 12]]
    assert np.concatenate([ids for *_, ids in found]).tolist() == [5, 6]
    assert all(first == sum(len(ids) for *_, ids in found[:rank]) for rank, (first, _, _) in enumerate(found))


def test_what_a_line_is_follows_from_those_before():
    """Piece by piece as in one go."""
    rows = IMAGES.split(b"\n")
    for cut in range(len(rows)):
        first, second = b"\n".join(rows[:cut]) + b"\n" * (cut > 0), b"\n".join(rows[cut:])
        for before in (False, True):
            at_cut = expects_keypoints(first, before)
            assert expects_keypoints(second, at_cut) == expects_keypoints(IMAGES, before)


@pytest.mark.parametrize(
    ("images", "points", "words"),
    [
        (IMAGES, POINTS.replace(b"4 2\n", b"4 3\n"), r"images\.txt: image 4 has no keypoint 3"),
        (IMAGES, POINTS.replace(b"4 2\n", b"9 2\n"), r"images\.txt: a track names image 9"),
        (IMAGES, POINTS.replace(b"6 1 1 9", b"6 1 x 9"), r"points3D\.txt:5"),
        (IMAGES, POINTS.replace(b"4 2\n", b"4\n"), r"points3D\.txt:5: got 9 numbers"),
        (IMAGES.replace(b"12 -1", b"12"), POINTS, r"images\.txt:12: got 8 numbers"),
        (IMAGES.replace(b"4 1 0 0 0", b"4 1 0 0 zero"), POINTS, r"images\.txt:11"),
        (IMAGES.replace(b"3 1 b c.png", b"3"), POINTS, r"images\.txt:11: got 8 tokens"),
        (IMAGES.replace(b"\n3 1 0", b"\n1 1 0"), POINTS, "image id 1 is used twice"),
        (b"", POINTS, "a track names image"),
    ],
)
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_damage_is_named_with_its_line(tmp_path, images, points, words, num_ranks):
    """On all ranks, wherever it is."""
    folder = model_of(tmp_path, images, points)
    with pytest.raises((FormatError, RankError), match=words):
        run_as_threads(num_ranks, lambda comm: reading.read(folder, comm))


def test_packed_and_missing_parts(tmp_path):
    """Each is named."""
    folder = model_of(tmp_path)
    (folder / "images.txt").rename(folder / "images.txt.gz")
    with pytest.raises(OptionError, match=r"images\.txt\.gz: parts of a packed file .* unpack it first"):
        run_as_threads(2, lambda comm: reading.read(folder, comm))


def test_no_rank_parses_the_whole(tmp_path, monkeypatch):
    """Pieces are about equal."""
    io.write_colmap(rig_model(), tmp_path / "model", as_text=True)
    sizes = {"parse_points": [], "parse_images": []}
    for name, seen in sizes.items():
        plain = getattr(text, name)

        def parse(data, path, first_line=1, plain=plain, seen=seen):
            seen.append(len(data))
            return plain(data, path, first_line)

        monkeypatch.setattr(text, name, parse)
    run_as_threads(4, lambda comm: reading.read(tmp_path / "model", comm))
    for name, part in (("parse_points", "points3D"), ("parse_images", "images")):
        whole = (tmp_path / "model" / f"{part}.txt").stat().st_size
        assert max(sizes[name]) < 0.5 * whole


def test_lines_of_all_ranks_are_the_file(tmp_path):
    """For any number of ranks."""
    path = tmp_path / "a.txt"
    for data in (IMAGES, IMAGES[:-1], b"", b"\n", b"one line"):
        path.write_bytes(data)
        for num_ranks in (1, 2, 3, 7, 30):
            found = run_as_threads(num_ranks, lambda comm: lines.read_lines(str(path), comm))
            assert b"".join(piece.data for piece in found) == data
            numbers = [1 + data[: piece.end - len(piece.data)].count(b"\n") for piece in found if piece.data]
            assert [piece.first_line for piece in found if piece.data] == numbers
