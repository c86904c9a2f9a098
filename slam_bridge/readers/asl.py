"""Sequences of EuRoC and TUM-VI: mav0/cam0/data/*.png with data.csv, imu0, and truth.

EuRoC    calibration in mav0/cam0/sensor.yaml, noise in imu0/sensor.yaml, state_groundtruth_estimate0
TUM-VI   calibration in dso/camchain.yaml, noise in dso/imu_config.yaml, mocap0 as truth
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slam_bridge.cameras import Rig
from slam_bridge.readers.calibration import Calibration, read_calibration
from slam_bridge.readers.euroc import StateTable, read_samples, read_states
from slam_bridge.readers.sequence import Sequence, SequenceError

IMAGES = (".png", ".jpg", ".jpeg", ".pgm", ".bmp", ".tif", ".tiff")
"""What images of a folder without a list may end in."""


def open_asl(kind: str, folder: Path, given: str | Path | None) -> Sequence:
    """A sequence of EuRoC or TUM-VI. given: calibration in place of the folder's."""
    mav = folder / "mav0" if (folder / "mav0").is_dir() else folder
    calibration = _asl_calibration(kind, folder, mav, given)
    if calibration.rig is None:
        raise SequenceError(f"{mav}: no calibration of a camera, expected cam0/sensor.yaml.")
    names = [name for name in ("cam0", "cam1") if (mav / name).is_dir()]
    if not names:
        raise SequenceError(f"{mav}: no images, expected cam0/data.")
    lists = [_asl_images(mav / name) for name in names]
    if len(calibration.rig) < len(names):
        raise SequenceError(
            f"{mav}: images of {' and '.join(names)}, but calibration of {len(calibration.rig)} camera."
            + "".join(f" {name}/sensor.yaml is missing." for name in names if not _has_sensor(mav / name))
        )
    rig = Rig(list(calibration.rig)[: len(lists)])
    common = set.intersection(*(set(found) for found, _ in lists))
    if len(common) < 2:
        raise SequenceError(f"{mav}: cam0 and cam1 have {len(common)} stamps in common.")
    stamps = np.array(sorted(set().union(*(found for found, _ in lists))), np.int64)
    paths = tuple(tuple(found.get(stamp) for found, _ in lists) for stamp in stamps.tolist())
    offset = round(1e9 * rig[0].time_offset)
    tables = [path for path in (mav / "imu0" / "data.csv", mav / "imu0.csv") if path.is_file()]
    imu, said = read_samples(tables[0]) if tables else (None, ())
    if imu is not None and calibration.imu is not None:
        imu = calibration.imu.corrected(imu)
    return Sequence(
        folder.resolve().name,
        kind,
        rig,
        stamps + offset,
        paths,
        imu,
        calibration.noise,
        calibration.gravity or 9.81,
        _asl_truth(mav),
        equalize=kind == "tumvi",
        notes=(*(note for _, note in lists if note), *said),
    )


def _asl_calibration(kind: str, folder: Path, mav: Path, given: str | Path | None) -> Calibration:
    if given is not None:
        return read_calibration(given)
    if any(mav.glob("cam*/sensor.yaml")):
        return read_calibration(mav)
    chains = [path for path in (folder / "dso" / "camchain.yaml", folder / "camchain.yaml") if path.is_file()]
    noise = [folder / "dso" / "imu_config.yaml", mav / "imu0" / "sensor.yaml"]
    noise = [path for path in noise if path.is_file()]
    if not chains:
        raise SequenceError(
            f"{folder}: no calibration. Expected mav0/cam0/sensor.yaml"
            + (" or dso/camchain.yaml" if kind == "tumvi" else "")
            + "; --calibration names a file of Kalibr, OpenVINS or ORB-SLAM3."
        )
    return read_calibration(*chains, *noise[:1])


def _has_sensor(camera: Path) -> bool:
    return (camera / "sensor.yaml").is_file()


def _asl_images(camera: Path) -> tuple[dict[int, Path], str]:
    """Files of one camera by stamp [ns], from data.csv or the names of the files.

    Images that data.csv lists but that are not there, or twice, are left out; the last value says so, or is
    empty.
    """
    table, folder = camera / "data.csv", camera / "data" if (camera / "data").is_dir() else camera
    files = {path.name: path for path in folder.iterdir()}
    note, pairs = "", []
    if table.is_file():
        pairs = [(stamp, folder / name) for stamp, name in _listed(table)]
        gone = [path.name for _, path in pairs if path.name not in files]
        if gone:
            note = f"{len(gone)} of the {len(pairs)} images that {table} lists are missing, such as {gone[0]}"
        pairs = [pair for pair in pairs if pair[1].name in files]
        if twice := len(pairs) - len(dict(pairs)):
            note += f"{'; ' * bool(note)}{twice} stamps that {table} lists were there already"
    else:
        pairs = [
            (int(file.stem), file)
            for file in files.values()
            if file.suffix.lower() in IMAGES and file.stem.isdigit()
        ]
    if len(pairs) < 2:
        raise SequenceError(
            f"{camera}: {len(pairs)} images, expected data/*.png named by their stamps [ns]"
            + (f"; {note}." if note else ".")
        )
    return dict(pairs), note


def _listed(table: Path) -> list[tuple[int, str]]:
    """Stamps [ns] and file names of a data.csv."""
    rows = []
    for number, line in enumerate(table.read_text().splitlines(), 1):
        words = [word.strip() for word in line.split(",")]
        if not line.strip() or line.startswith("#"):
            continue
        if len(words) < 2 or not words[0].isdigit() or not words[1]:
            raise SequenceError(
                f"{table}, line {number}: {line[:60]!r}; expected a stamp [ns] and a file name, separated by "
                "a comma. Is the file complete?"
            )
        rows.append((int(words[0]), words[1]))
    return rows


def _asl_truth(mav: Path) -> StateTable | None:
    for name in ("state_groundtruth_estimate0", "mocap0"):
        if (mav / name / "data.csv").is_file():
            return read_states(mav / name / "data.csv")
    return None
