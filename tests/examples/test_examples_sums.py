"""Deconvolution: the energy is scipy's, its gradient vanishes at the end, the picture becomes sharper."""

import numpy as np
import pytest
import scipy.ndimage
from examples_modules import deconvolution, own_types

__all__ = ["own_types"]  # a fixture of this module


def energy(photons, counted, weights, variation=0.05, width=1.0):
    """Written once more, with scipy's filter; (energy, gradient) by the photons."""
    blurred = scipy.ndimage.correlate(photons, weights, mode="mirror")
    root = np.sqrt(np.maximum(blurred + 0.375, deconvolution.FEWEST))
    counts = 2.0 * root - 2.0 * np.sqrt(counted + 0.375)
    steps = np.concatenate([np.diff(photons, axis=k).ravel() for k in (0, 1)])
    return (counts**2).sum() + 2.0 * width * variation * (np.sqrt(1.0 + (steps / width) ** 2) - 1.0).sum()


@pytest.fixture(scope="module")
def sharpened():
    """A small picture: counts, weights, photons found, summary, truth."""
    truth, weights = deconvolution.generated(24), deconvolution.disk(5)
    counted = deconvolution.counted_photons(truth, weights, 200.0)
    photons, summary = deconvolution.sharpen(counted, weights, device="cpu")
    return counted, weights, photons, summary, truth


def test_energy_is_scipys(sharpened):
    """At the result and at the start."""
    counted, weights, photons, summary, _ = sharpened
    assert energy(photons, counted, weights) == pytest.approx(summary.final_chi2, rel=1e-9)
    assert energy(np.maximum(counted, 1.0), counted, weights) == pytest.approx(summary.initial_chi2, rel=1e-9)


def test_nothing_near_is_lower(sharpened):
    """Along random directions and single pixels the energy rises by more than it falls, or hardly changes."""
    counted, weights, photons, summary, _ = sharpened
    rng = np.random.default_rng(0)
    for _ in range(20):
        step = rng.normal(size=photons.shape)
        slope = energy(photons + 1e-4 * step, counted, weights) - energy(
            photons - 1e-4 * step, counted, weights
        )
        ahead = energy(photons - 2.0 * np.sign(slope) * step, counted, weights)
        assert ahead > (1.0 - 1e-3) * summary.final_chi2


def test_the_picture_becomes_sharper(sharpened):
    """Its error falls by a fifth at least."""
    counted, _, photons, _, truth = sharpened
    before, after = (np.sqrt(np.mean((image / 200.0 - truth) ** 2)) for image in (counted, photons))
    assert after < 0.8 * before


def test_a_blur_that_varies():
    """Weights sum to one everywhere, differ between places, and the picture becomes sharper."""
    truth = deconvolution.generated(24)
    weights = deconvolution.varying_motion(5, truth.shape)
    np.testing.assert_allclose(weights.sum(axis=(0, 1)), 1.0)
    assert np.abs(weights[..., 12, 1] - weights[..., 1, 12]).max() > 0.1
    counted = deconvolution.counted_photons(truth, weights, 500.0)
    photons, _ = deconvolution.sharpen(counted, weights, device="cpu")
    before, after = (np.sqrt(np.mean((image / 500.0 - truth) ** 2)) for image in (counted, photons))
    assert after < 0.8 * before


@pytest.mark.parametrize(("size", "blur", "varies"), [(12, 3, False), (16, 11, False), (12, 3, True)])
def test_on_a_gpu_it_is_the_same(size, blur, varies):
    """Pixels, sums and edges on the device."""
    truth = deconvolution.generated(size)
    weights = deconvolution.varying_motion(blur, truth.shape) if varies else deconvolution.disk(blur)
    counted = deconvolution.counted_photons(truth, weights, 200.0)
    ends = [deconvolution.sharpen(counted, weights, device=place)[1] for place in ("cpu", "vulkan")]
    assert ends[1].final_chi2 == pytest.approx(ends[0].final_chi2, rel=1e-3)
    assert "cpu" not in ends[1].device and "host" not in str(ends[1].schedule)


def test_the_command(tmp_path, capsys):
    """It writes a picture and prints errors; a width that is even is refused."""
    pytest.importorskip("matplotlib")
    out = tmp_path / "out.png"
    deconvolution.main(["--size", "20", "--blur", "3", "--device", "cpu", "-o", str(out)])
    assert out.stat().st_size > 0 and "of the result" in capsys.readouterr().out
    with pytest.raises(deconvolution.command.ExampleError, match="odd"):
        deconvolution.main(["--blur", "4"])
