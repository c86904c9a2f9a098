"""What all tests of the device's block solver share."""

import pytest
from vulkan_devices import SHARED


@pytest.fixture(autouse=True)
def silent():
    """After a test the validation layer has said nothing about the devices that tests share."""
    yield
    assert [device.messages for device in SHARED] == [[]] * len(SHARED)
