"""Sizes of the maps that ORB-SLAM3 makes of published sequences.

Gopinath, master's thesis, table 5.8, desktop: keyframes, map points, observations at the end of the sequence.
"""

from __future__ import annotations

SIZES: dict[str, tuple[int, int, int]] = {
    "MH01": (126, 9403, 42327),
    "MH02": (114, 8450, 38227),
    "MH03": (148, 11516, 56160),
    "MH04": (169, 14119, 65201),
    "MH05": (161, 13830, 65977),
    "V101": (105, 8547, 37524),
    "V102": (115, 10872, 44054),
    "V103": (130, 9717, 37782),
    "V201": (92, 7780, 31948),
    "V202": (127, 10333, 40774),
    "V203": (284, 15571, 65778),
    "room1": (78, 2622, 21926),
    "room2": (82, 2925, 23009),
    "room3": (81, 3353, 22574),
    "room4": (83, 3301, 20995),
    "room5": (81, 2651, 23787),
    "room6": (72, 2320, 21486),
    "outdoors1": (3738, 88768, 431608),
    "outdoors2": (2510, 72079, 362589),
    "outdoors3": (2943, 72929, 431305),
    "outdoors4": (1770, 43247, 227468),
    "outdoors5": (2365, 71880, 447025),
    "outdoors6": (5183, 187253, 907125),
    "outdoors7": (3262, 99731, 504594),
    "outdoors8": (2075, 62077, 338256),
}
"""Keyframes, landmarks, observations by name."""
