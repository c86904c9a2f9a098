"""Files of visual-inertial data sets and calibration tools."""

from slam_bridge.readers.calibration import Calibration, read_calibration
from slam_bridge.readers.euroc import StateTable, read_imu, read_states

__all__ = ["Calibration", "StateTable", "read_calibration", "read_imu", "read_states"]
