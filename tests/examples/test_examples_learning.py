"""Examples that learn through solves: what they find is what the data were made with."""

import learn_distortion
import learn_noise
import numpy as np
import pytest
import torch_factor

from graphopt.types import registry


def test_distortion_is_found():
    """Of a camera that starts as a pinhole: the positions of corners in the image are those of the truth."""
    found, true = learn_distortion.main()
    radius = np.linspace(0.0, 0.6, 20)[:, None] ** [2, 4, 6]
    wanted, got = (radius @ values[[0, 1, 4]] for values in (true, found))
    np.testing.assert_allclose(got, wanted, atol=5e-3)


@pytest.mark.slow
def test_noise_is_found():
    """The trajectory's error falls from decimetres to a centimetre."""
    wrong, learned = learn_noise.main()
    assert learned < 0.1 * wrong


@pytest.mark.slow
def test_a_network_in_the_graph():
    """It knows what odometry does not."""
    try:
        odometry, with_network = torch_factor.main()
    finally:
        registry.unregister(registry.edge_type("EDGE_GROUND_HEIGHT"))
    assert with_network < 0.3 * odometry
