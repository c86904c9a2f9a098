"""Names of published sequences, and what is typical of each: duration, path, place, sensor, agitation.

Durations and path lengths are those of the data sets' papers (Burri et al., IJRR 2016; Schubert et al.,
IROS 2018), rounded; where a paper states no duration it follows from a walking speed of 1.3 m/s. They shape
built-in trajectories on machines that have no ground truth of the sequence.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from graphopt.errors import OptionError

_WALKING = 1.3  # [m/s]


@dataclass(frozen=True)
class Character:
    """What a sequence is like."""

    name: str
    """As in the data set's tables: "MH01", "V102", "room4", "outdoors6"."""
    duration: float
    """[s]."""
    length: float
    """Of the path [m]."""
    place: str
    """"room", "hall", "corridor" or "outdoors"."""
    sensor: str
    """"euroc" (rectilinear stereo on a small helicopter) or "tumvi" (fisheye stereo, hand-held)."""

    @property
    def speed(self) -> float:
        """Mean [m/s]."""
        return self.length / self.duration


def _euroc() -> list[Character]:
    halls = {
        "MH01": (182, 80.6),
        "MH02": (150, 73.5),
        "MH03": (132, 130.9),
        "MH04": (99, 91.7),
        "MH05": (111, 97.6),
    }
    rooms = {
        "V101": (144, 58.6), "V102": (83.5, 75.9), "V103": (105, 79.0),
        "V201": (112, 36.5), "V202": (115, 83.2), "V203": (115, 86.1),
    }  # fmt: skip
    return [Character(name, time, length, "hall", "euroc") for name, (time, length) in halls.items()] + [
        Character(name, time, length, "room", "euroc") for name, (time, length) in rooms.items()
    ]


def _tumvi() -> list[Character]:
    rooms = ((141, 146), (144, 142), (141, 135), (111, 68), (142, 131), (131, 67))
    characters = [
        Character(f"room{k + 1}", time, length, "room", "tumvi") for k, (time, length) in enumerate(rooms)
    ]
    for place, kind, lengths in (
        ("corridor", "corridor", (305, 322, 300, 114, 270)),
        ("magistrale", "corridor", (918, 561, 566, 688, 458, 771)),
        ("outdoors", "outdoors", (2656, 1601, 1531, 928, 1168, 2045, 1748, 986)),
        ("slides", "corridor", (289, 299, 383)),
    ):
        characters += [
            Character(f"{place}{k + 1}", round(length / _WALKING), length, kind, "tumvi")
            for k, length in enumerate(lengths)
        ]
    return characters


CHARACTERS = {character.name: character for character in (*_euroc(), *_tumvi())}
"""By name."""


def plain_name(text: str) -> str:
    """The name without what publishers add: "MH_01_easy", "dataset-room4_512_16" become "mh01", "room4"."""
    name = text.lower().removeprefix("dataset-")
    name = re.sub(r"[_-](512|1024)([_-]16)?.*$", "", name)
    name = re.sub(r"[_-]?(easy|medium|difficult).*$", "", name)
    return re.sub(r"[^a-z0-9]", "", name)


def character(name: str) -> Character:
    """Look a sequence up; `OptionError` names the nearest known one."""
    by_plain = {plain_name(known): known for known in CHARACTERS}
    plain = plain_name(name)
    if plain in by_plain:
        return CHARACTERS[by_plain[plain]]
    near = difflib.get_close_matches(plain, by_plain, 1, 0.5)
    hint = f" Did you mean {by_plain[near[0]]}?" if near else ""
    raise OptionError(f"there is no sequence {name!r}.{hint} Known: {', '.join(CHARACTERS)}.")
