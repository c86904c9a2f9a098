"""Inertial: velocities, biases and preintegrated IMU measurements between poses. g2o has no such types.

Poses are VertexSE3, world_T_body, where body is the IMU's frame. Velocities v are those of the body in the
world's frame [m/s]; biases are in the body's frame [rad/s, m/s^2]. Gravity g points down: (0, 0, -9.81) where
z is up, and an accelerometer at rest measures -R' g.

EdgeInertial, from state i to state j after dt, with d_g = b_g - b_g0 and d_a = b_a - b_a0 (Forster et al.,
On-Manifold Preintegration for Real-Time Visual-Inertial Odometry, TRO 2017; equations 44 and 45):

    e_R = Log( (dR Exp(J_Rg d_g))' R_i' R_j )
    e_v = R_i' (v_j - v_i - g dt)                  - (dv + J_vg d_g + J_va d_a)
    e_p = R_i' (p_j - p_i - v_i dt - g dt^2 / 2)   - (dp + J_pg d_g + J_pa d_a)

The biases are those of state i. A measurement has 65 numbers (`FIELDS`).

EdgeInertialCombined adds how far the biases walked, b_gj - b_gi and b_aj - b_ai: with the 15 x 15 information
of Forster's section VII-B, whose blocks couple the walk with the motion.

EdgeInertialGravityScale finds where down is and how long a metre is, for a monocular map at start: positions
and velocities are in the map's unit, s metres each; gravity is R_g g. In e_v and e_p, v and p are replaced by
s v and s p (Campos et al., Inertial-Only Optimization for Visual-Inertial Initialization, ICRA 2020).
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from graphopt.geometry import SE3, SO3, concatenate, matvec, quaternion, scale, stack
from graphopt.geometry.so3 import quaternion_to_rotation_vector, rotation_vector_to_quaternion
from graphopt.types.base import VertexType, unwrapped
from graphopt.types.define import add, define_edge, scalar
from graphopt.types.files import VertexFile, plain
from graphopt.types.registry import register
from graphopt.types.slam3d import VertexSE3

Array = Any

FIELDS = {
    "dt": 1,
    "delta_rotation": 4,
    "delta_velocity": 3,
    "delta_position": 3,
    "gyro_bias": 3,
    "acc_bias": 3,
    "rotation_D_gyro_bias": 9,
    "velocity_D_gyro_bias": 9,
    "velocity_D_acc_bias": 9,
    "position_D_gyro_bias": 9,
    "position_D_acc_bias": 9,
    "gravity": 3,
}
"""Numbers of an inertial measurement in order: dt [s]; quaternion x, y, z, w of dR; dv [m/s]; dp [m]; the
biases it was integrated with; derivatives by them, each 3 x 3 row by row; gravity in the world [m/s^2]."""

_ENDS = dict(zip(FIELDS, accumulate(FIELDS.values()), strict=True))
MEASUREMENT_DIM = sum(FIELDS.values())


class InertialMeasurement:
    """Preintegrated measurement, storage (..., 65): see `FIELDS`."""

    __slots__ = ("storage",)
    quaternions = (1,)  # of delta_rotation
    identity_storage = (*(0.0,) * 4, 1.0, *(0.0,) * (MEASUREMENT_DIM - 5))

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    def field(self, name: str) -> Array:
        """Numbers of one field (..., size); matrices (..., 3, 3)."""
        values = self.storage[..., _ENDS[name] - FIELDS[name] : _ENDS[name]]
        return values.reshape((*values.shape[:-1], 3, 3)) if FIELDS[name] == 9 else values

    @property
    def dt(self) -> Array:
        """Duration [s]."""
        return scalar(self.field("dt"))

    @property
    def gravity(self) -> Array:
        """Gravity in the world's frame (..., 3) [m/s^2]."""
        return self.field("gravity")

    def corrected(self, gyro_bias: Array, acc_bias: Array) -> tuple[Array, Array, Array]:
        """(quaternion of dR, dv, dp) for other biases, to first order: equation 44."""
        d_g = gyro_bias - self.field("gyro_bias")
        d_a = acc_bias - self.field("acc_bias")
        turn = rotation_vector_to_quaternion(matvec(self.field("rotation_D_gyro_bias"), d_g))
        return (
            quaternion.multiply(self.field("delta_rotation"), turn),
            self._shifted("velocity", d_g, d_a),
            self._shifted("position", d_g, d_a),
        )

    def _shifted(self, what: str, d_g: Array, d_a: Array) -> Array:
        by_gyro = matvec(self.field(f"{what}_D_gyro_bias"), d_g)
        return self.field(f"delta_{what}") + by_gyro + matvec(self.field(f"{what}_D_acc_bias"), d_a)


def _vector_vertex(name: str, tag: str, doc: str) -> VertexType:
    return register(VertexType(name, tag, 3, 3, add, unwrapped, (0.0, 0.0, 0.0), plain(3), doc=doc))


VertexVelocity = _vector_vertex(
    "VertexVelocity", "VERTEX_IMU_VELOCITY", "Velocity of the body in the world's frame [m/s]."
)
VertexGyroBias = _vector_vertex(
    "VertexGyroBias", "VERTEX_IMU_GYRO_BIAS", "Bias of the gyroscope in the body's frame [rad/s]."
)
VertexAccBias = _vector_vertex(
    "VertexAccBias", "VERTEX_IMU_ACC_BIAS", "Bias of the accelerometer in the body's frame [m/s^2]."
)


def oplus_gravity(storage: Array, delta: Array) -> Array:
    """R <- R Exp(x, y, 0): turns about the direction itself change nothing and are left out."""
    x, y = delta[..., 0][()], delta[..., 1][()]
    return (SO3(storage) * SO3.exp(stack(x, y, 0.0 * x))).storage


def _tidy_rotation(storage: Array) -> Array:
    length = np.linalg.norm(storage, axis=-1, keepdims=True)
    return np.where(length > 0.0, storage / np.where(length > 0.0, length, 1.0), SO3.identity_storage)


VertexGravityDirection = register(
    VertexType(
        "VertexGravityDirection",
        "VERTEX_IMU_GRAVITY_DIRECTION",
        4,
        2,
        oplus_gravity,
        SO3,
        SO3.identity_storage,
        VertexFile(4, _tidy_rotation, np.array),
        doc="Rotation qx, qy, qz, qw from a frame with z up to the world's; two degrees of freedom.",
    )
)


def oplus_scale(storage: Array, delta: Array) -> Array:
    """s exp(delta): a scale stays positive."""
    return storage * np.exp(delta)


VertexScale = register(
    VertexType(
        "VertexScale",
        "VERTEX_IMU_SCALE",
        1,
        1,
        oplus_scale,
        scalar,
        (1.0,),
        plain(1),
        doc="Metres per unit of the map, updated by a factor exp(delta).",
    )
)


def _motion_error(
    first: SE3, second: SE3, delta: tuple[Array, Array, Array], velocity_change: Array, way: Array
) -> Array:
    """Join e_R, e_v and e_p; velocity_change and way are free of gravity, in the world's frame [m/s, m]."""
    delta_rotation, delta_velocity, delta_position = delta
    body_T_world = first.rotation.inverse()
    turn = SO3(delta_rotation).inverse() * body_T_world * second.rotation
    return concatenate(
        quaternion_to_rotation_vector(turn.quaternion),
        body_T_world.act(velocity_change) - delta_velocity,
        body_T_world.act(way) - delta_position,
    )


def edge_inertial(
    first: SE3,
    velocity: Array,
    gyro_bias: Array,
    acc_bias: Array,
    second: SE3,
    second_velocity: Array,
    measured: InertialMeasurement,
) -> Array:
    """(e_R, e_v, e_p): motion of the body - preintegrated IMU measurements."""
    dt, gravity = measured.dt, measured.gravity
    fall = scale(dt, gravity)
    way = second.translation - first.translation - scale(dt, velocity + 0.5 * fall)
    change = second_velocity - velocity - fall
    return _motion_error(first, second, measured.corrected(gyro_bias, acc_bias), change, way)


def edge_inertial_combined(
    first: SE3,
    velocity: Array,
    gyro_bias: Array,
    acc_bias: Array,
    second: SE3,
    second_velocity: Array,
    second_gyro_bias: Array,
    second_acc_bias: Array,
    measured: InertialMeasurement,
) -> Array:
    """(e_R, e_v, e_p) and the change of both biases."""
    motion = edge_inertial(first, velocity, gyro_bias, acc_bias, second, second_velocity, measured)
    return concatenate(motion, second_gyro_bias - gyro_bias, second_acc_bias - acc_bias)


def edge_inertial_gravity_scale(
    first: SE3,
    velocity: Array,
    gyro_bias: Array,
    acc_bias: Array,
    second: SE3,
    second_velocity: Array,
    direction: SO3,
    metres: Array,
    measured: InertialMeasurement,
) -> Array:
    """(e_R, e_v, e_p) for a map of unknown scale and orientation."""
    dt = measured.dt
    fall = scale(dt, direction.act(measured.gravity))
    way = second.translation - first.translation - scale(dt, velocity)
    change = scale(metres, second_velocity - velocity) - fall
    delta = measured.corrected(gyro_bias, acc_bias)
    return _motion_error(first, second, delta, change, scale(metres, way) - scale(0.5 * dt, fall))


def edge_random_walk(first: Array, second: Array, measured: Array) -> Array:
    """Second - first - measured; the measurement is zero for a random walk."""
    return second - first - measured


def edge_prior(value: Array, measured: Array) -> Array:
    """Value - measured."""
    return value - measured


_STATE_CHANGE = (VertexSE3, VertexVelocity, VertexGyroBias, VertexAccBias, VertexSE3, VertexVelocity)

EdgeInertial = define_edge(
    "EdgeInertial",
    "EDGE_IMU_INERTIAL",
    _STATE_CHANGE,
    9,
    edge_inertial,
    InertialMeasurement,
    measurement=plain(MEASUREMENT_DIM),
)
EdgeInertialCombined = define_edge(
    "EdgeInertialCombined",
    "EDGE_IMU_INERTIAL_COMBINED",
    (*_STATE_CHANGE, VertexGyroBias, VertexAccBias),
    15,
    edge_inertial_combined,
    InertialMeasurement,
    measurement=plain(MEASUREMENT_DIM),
)
EdgeInertialGravityScale = define_edge(
    "EdgeInertialGravityScale",
    "EDGE_IMU_INERTIAL_GRAVITY_SCALE",
    (*_STATE_CHANGE, VertexGravityDirection, VertexScale),
    9,
    edge_inertial_gravity_scale,
    InertialMeasurement,
    measurement=plain(MEASUREMENT_DIM),
)
EdgeGyroRandomWalk = define_edge(
    "EdgeGyroRandomWalk", "EDGE_IMU_GYRO_RANDOM_WALK", (VertexGyroBias, VertexGyroBias), 3, edge_random_walk
)
EdgeAccRandomWalk = define_edge(
    "EdgeAccRandomWalk", "EDGE_IMU_ACC_RANDOM_WALK", (VertexAccBias, VertexAccBias), 3, edge_random_walk
)
EdgeVelocityPrior = define_edge(
    "EdgeVelocityPrior", "EDGE_IMU_VELOCITY_PRIOR", (VertexVelocity,), 3, edge_prior
)
EdgeGyroBiasPrior = define_edge(
    "EdgeGyroBiasPrior", "EDGE_IMU_GYRO_BIAS_PRIOR", (VertexGyroBias,), 3, edge_prior
)
EdgeAccBiasPrior = define_edge("EdgeAccBiasPrior", "EDGE_IMU_ACC_BIAS_PRIOR", (VertexAccBias,), 3, edge_prior)
