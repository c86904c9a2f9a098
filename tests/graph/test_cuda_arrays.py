"""Arrays in a CUDA device's memory: copied in the order of their stream. Needs an NVIDIA GPU."""

import numpy as np
import pytest
import torch

from graphopt.foreign_arrays import host

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
NUMBERS = np.arange(60.0).reshape(5, 4, 3)


class OnlyInterface:
    """`__cuda_array_interface__` and nothing else."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self.tensor = tensor


@pytest.mark.parametrize("view", ["whole", "transposed", "offset", "strided", "float32", "int64"])
@pytest.mark.parametrize("way", [lambda tensor: tensor, OnlyInterface], ids=["dlpack", "interface"])
def test_numbers_strides_and_offsets(view, way):
    """As torch itself copies them."""
    whole = torch.tensor(NUMBERS, device="cuda")
    tensor = {
        "whole": whole,
        "transposed": whole.permute(2, 0, 1),
        "offset": whole[1:, 1:3],
        "strided": whole[::2, :, ::2],
        "float32": whole.float(),
        "int64": whole.long(),
    }[view]
    np.testing.assert_array_equal(host(way(tensor)), tensor.cpu().numpy())


def test_the_stream_is_waited_for():
    """Written on a stream of its own just before."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor = torch.zeros(4000, 4000, dtype=torch.float64, device="cuda")
        for _ in range(20):
            tensor = tensor @ tensor + 1.0
        tensor = torch.ones_like(tensor) * 3.0
        found = host(tensor)
    assert (found == 3.0).all()
