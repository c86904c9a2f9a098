"""From views to the images of a camera: exposure, motion blur, noise.

    image = clip(gain mean_k view(t + shutter (k + 1/2 - n/2) / n) + noise),     k = 0 ... n - 1

Stamps are those of the middle of the exposure, as EuRoC's. With automatic exposure the gain follows the
brightness of the images before, by a tenth of what is missing per frame, as cameras do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from slam_bridge.generator.render import Renderer
from slam_bridge.generator.trajectory import Trajectory

_TARGET = 118.0  # mean grey that automatic exposure aims at
_SPEED = 0.1


@dataclass(frozen=True)
class ImageOptions:
    """How views become images."""

    exposure: float | str = 1.0
    """Factor of brightness, or "auto": it follows the scene."""
    shutter: float = 0.0
    """Time of exposure, during which motion blurs [s]; 0: none."""
    blur_samples: int = 5
    """Views per blurred image."""
    noise: float = 1.5
    """Standard deviation of the grey values (of 255)."""
    supersample: int = 2
    """Rays per pixel and direction; 1: only edges have more, three times as fast, corners to 0.3 pixels."""

    def __post_init__(self) -> None:
        if isinstance(self.exposure, str):
            if self.exposure != "auto":
                raise OptionError(f"exposure is {self.exposure!r}, expected a factor or auto.")
        elif not 0.0 < self.exposure < 20.0:
            raise OptionError(f"exposure is {self.exposure}, expected a factor between 0 and 20.")
        if not 0.0 <= self.shutter < 0.05:
            raise OptionError(f"shutter is {self.shutter} s, expected 0 to 0.05.")
        if not 0.0 <= self.noise < 100.0:
            raise OptionError(f"noise of images is {self.noise}, expected 0 to 100 grey values.")
        if not 1 <= self.blur_samples <= 100:
            raise OptionError(f"blur_samples is {self.blur_samples}, expected 1 to 100.")


class ImageMaker:
    """Images of one camera along a trajectory; call `image` in the order of time."""

    def __init__(self, renderer: Renderer, trajectory: Trajectory, options: ImageOptions, seed: Any = 0):
        self._renderer, self._trajectory, self._options = renderer, trajectory, options
        self._generator = np.random.default_rng(seed)
        self._gain: float | None = None if options.exposure == "auto" else float(options.exposure)
        self._automatic = options.exposure == "auto"

    def image(self, stamp: int) -> np.ndarray:
        """(height, width) float32, 0 to 255, at a stamp [ns]."""
        view = self._view(stamp)
        mean = max(float(view.mean()), 1.0)
        if self._gain is None:
            self._gain = _TARGET / mean
        image = self._gain * view
        if self._automatic:
            self._gain *= (_TARGET / (self._gain * mean)) ** _SPEED
        if self._options.noise > 0.0:
            image += self._options.noise * self._generator.standard_normal(view.shape, np.float32)
        return np.clip(image, 0.0, 255.0, out=image)

    def _view(self, stamp: int) -> np.ndarray:
        options = self._options
        if options.shutter == 0.0:
            return self._renderer.render(self._trajectory.at(stamp).world_T_body[0]).grey
        n = options.blur_samples
        shifts = options.shutter * ((np.arange(n) + 0.5) / n - 0.5)
        poses = self._trajectory.at(stamp + np.rint(1e9 * shifts).astype(np.int64)).world_T_body
        return np.mean([self._renderer.render(pose).grey for pose in poses], axis=0)
