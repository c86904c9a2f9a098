# ruff: noqa: D102, B008 - written as such programs are
"""A small SLAM back end that calls the bindings as stereo_ptam and rgbd_ptam do.

It imports only the bindings, by the name given as argument. Prints the largest error of the keyframes before
and after the loop was closed [m], and how many measurements of the map were kept and how many were bad.
"""

import importlib
import sys
from collections import namedtuple
from threading import Thread

import numpy as np

g2o = importlib.import_module(sys.argv[1])
SmoothEstimatePropagator = importlib.import_module(f"{sys.argv[1]}.contrib").SmoothEstimatePropagator

Camera = namedtuple("Camera", "fx fy cx cy baseline")
CAMERA = Camera(400.0, 400.0, 320.0, 240.0, 0.2)


class PoseGraph(g2o.SparseOptimizer):
    """Methods of the base with arguments of their own."""

    def __init__(self):
        super().__init__()
        solver = g2o.BlockSolverSE3(g2o.LinearSolverCholmodSE3())
        super().set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))

    def optimize(self, max_iterations=20):
        super().initialize_optimization()
        super().optimize(max_iterations)

    def add_vertex(self, id, pose, fixed=False):
        v = g2o.VertexSE3()
        v.set_id(id)
        v.set_estimate(pose)
        v.set_fixed(fixed)
        super().add_vertex(v)

    def add_edge(self, vertices, measurement=None, information=np.identity(6), robust_kernel=None):
        edge = g2o.EdgeSE3()
        for i, v in enumerate(vertices):
            edge.set_vertex(i, self.vertex(v) if isinstance(v, int) else v)
        if measurement is None:
            measurement = edge.vertex(0).estimate().inverse() * edge.vertex(1).estimate()
        edge.set_measurement(measurement)
        edge.set_information(information)
        if robust_kernel is not None:
            edge.set_robust_kernel(robust_kernel)
        super().add_edge(edge)

    def set_data(self, keyframes, loops):
        super().clear()
        anchor = min(first for first, _, _ in loops)
        for i, pose in enumerate(keyframes):
            self.add_vertex(i, g2o.Isometry3d(pose.orientation(), pose.position()), fixed=i <= anchor)
            if i > 0:
                self.add_edge((i - 1, i))
        for first, second, measured in loops:
            self.add_edge((first, second), measurement=measured)


class BundleAdjustment(g2o.SparseOptimizer):
    """Cameras have even ids, points odd ones."""

    def __init__(self):
        super().__init__()
        solver = g2o.BlockSolverSE3(g2o.LinearSolverCSparseSE3())
        super().set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
        terminate = g2o.SparseOptimizerTerminateAction()
        terminate.set_gain_threshold(1e-6)
        super().add_post_iteration_action(terminate)
        self.delta = np.sqrt(5.991)

    def optimize(self, max_iterations=10):
        super().initialize_optimization()
        super().optimize(max_iterations)

    def add_pose(self, id, pose, fixed=False):
        camera = g2o.SBACam(pose.orientation(), pose.position())
        camera.set_cam(*CAMERA)
        v = g2o.VertexCam()
        v.set_id(2 * id)
        v.set_estimate(camera)
        v.set_fixed(fixed)
        super().add_vertex(v)

    def add_point(self, id, point):
        v = g2o.VertexSBAPointXYZ()
        v.set_id(2 * id + 1)
        v.set_marginalized(True)
        v.set_estimate(point)
        v.set_fixed(False)
        super().add_vertex(v)

    def add_edge(self, id, point, pose, kind, measured):
        classes = {"stereo": g2o.EdgeProjectP2SC, "left": g2o.EdgeProjectP2MC}
        edge = classes.get(kind, g2o.EdgeProjectP2MCRight)()
        edge.set_measurement(measured)
        edge.set_information(np.identity(3) if kind == "stereo" else np.identity(2) * 0.5)
        edge.set_id(id)
        edge.set_vertex(0, self.vertex(2 * point + 1))
        edge.set_vertex(1, self.vertex(2 * pose))
        edge.set_robust_kernel(g2o.RobustKernelHuber(self.delta))
        super().add_edge(edge)

    def bad(self):
        return [edge.id() for edge in self.active_edges() if edge.chi2() > 5.991]


def true_pose(angle):
    c, s = np.cos(angle), np.sin(angle)
    return g2o.Isometry3d(
        g2o.Quaternion(np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])),
        np.array([5.0 * c, 5.0 * s, 0.0]),
    )


def close_loop(answers):
    """A ring of keyframes that drifted, and one measurement between its ends."""
    count = 40
    truth = [true_pose(2.0 * np.pi * i / count) for i in range(count)]
    keyframes = [truth[0]]
    bend = g2o.Isometry3d(g2o.AngleAxis(0.01, np.array([0.0, 0.0, 1.0])).matrix(), np.zeros((3, 1)))
    for i in range(1, count):
        keyframes.append(keyframes[-1] * (truth[i - 1].inverse() * truth[i]) * bend)
    # `solvePnP` gives a matrix and a column
    motion = truth[0].inverse() * truth[-1]
    constraint = g2o.Isometry3d(motion.rotation_matrix(), motion.translation().reshape(3, 1))
    delta = (truth[-1].inverse() * truth[0]) * constraint
    assert g2o.AngleAxis(delta.rotation()).angle() < 0.1 and np.linalg.norm(delta.translation()) < 0.5
    optimizer = PoseGraph()
    for _ in range(2):  # a second loop starts from a cleared graph
        optimizer.set_data(keyframes, [(0, count - 1, constraint)])
        before = [g2o.Isometry3d(keyframe.orientation(), keyframe.position()) for keyframe in keyframes]
        propagator = SmoothEstimatePropagator(optimizer, max(20, count * 0.1))
        propagator.propagate(optimizer.vertex(0))
        optimizer.optimize(20)
    after = [optimizer.vertex(i).estimate() for i in range(count)]
    answers["loop"] = [
        max(np.linalg.norm(a.position() - b.position()) for a, b in zip(poses, truth, strict=True))
        for poses in (before, after)
    ]
    # what the map does with the correction
    vertex = optimizer.vertex(count - 1)
    uncorrected = before[-1]
    corrected = vertex.estimate()
    vertex.set_estimate(vertex.estimate() * (uncorrected.inverse() * uncorrected))
    correction = uncorrected.inverse() * corrected
    point = np.array([1.0, 2.0, 3.0])
    local = uncorrected.inverse() * point
    np.testing.assert_allclose(corrected * local, (uncorrected * correction) * local)


def adjust(answers):
    """Local bundle adjustment with ten bad matches among 200."""
    random = np.random.default_rng(0)
    points = random.uniform([-2.0, -2.0, 4.0], [2.0, 2.0, 8.0], (50, 3))
    optimizer = BundleAdjustment()
    for i, point in enumerate(points):
        optimizer.add_point(i, point + random.normal(0.0, 0.02, 3))
    kinds = ("stereo", "stereo", "left", "right")
    for k, kind in enumerate(kinds):
        position = np.array([0.3 * k, 0.0, 0.0])
        noise = random.normal(0.0, 0.01, 3) if k > 1 else np.zeros(3)
        optimizer.add_pose(k, g2o.Isometry3d(g2o.Quaternion(), position + noise), fixed=k < 2)
        for i, point in enumerate(points):
            x, y, z = point - position
            u, v = CAMERA.fx * x / z + CAMERA.cx, CAMERA.fy * y / z + CAMERA.cy
            right = u - CAMERA.fx * CAMERA.baseline / z
            measured = {"stereo": [u, v, right], "left": [u, v], "right": [right, v]}[kind]
            if k == 1 and i % 5 == 0:
                measured = np.array(measured) + 30.0
            optimizer.add_edge(50 * k + i, i, k, kind, np.array(measured))
    optimizer.optimize(15)
    bad = optimizer.bad()
    answers["map"] = 200 - len(bad), len(bad)
    assert all(50 <= id_ < 100 and id_ % 5 == 0 for id_ in bad), bad


def main():
    answers = {}
    threads = [Thread(target=work, args=(answers,)) for work in (close_loop, adjust)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*answers["loop"], *answers["map"])


if __name__ == "__main__":
    main()
