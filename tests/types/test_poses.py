"""Types say where their vertices are: all that uses poses works for Sim3 and users' types, without names."""

import numpy as np
import pytest

import graphopt
from graphopt import io
from graphopt.errors import GraphError, OptionError
from graphopt.evaluate import report
from graphopt.evaluate.report.scene import scene
from graphopt.geometry import SE2, SE3, Sim3
from graphopt.graph.poses import poses_of_graph
from graphopt.problem.gauge import choose_gauge
from graphopt.types import registry
from graphopt.types.poses import POSE_ROLES, ROLES, in_space

pytestmark = pytest.mark.usefixtures("own_types")

N = 12


WITH_POSE = [kind for kind in registry.vertex_types() if kind.pose is not None]


def some_storage(kind, seed=0, count=5):
    """Estimates around the identity (count, storage_dim)."""
    deltas = np.random.default_rng(seed).uniform(-0.3, 0.3, (count, kind.tangent_dim))
    return kind.oplus(np.tile(np.array(kind.identity), (count, 1)), deltas)


@pytest.mark.parametrize("kind", WITH_POSE, ids=lambda kind: kind.name)
def test_pose_and_place_are_inverse(kind):
    """place(pose(x), x) is x; another vertex' pose can be given, and what is no pose stays."""
    x, y = some_storage(kind), some_storage(kind, 1)
    np.testing.assert_allclose(kind.place(kind.pose(x), x), x, atol=1e-12)
    moved = kind.place(kind.pose(y), x)
    np.testing.assert_allclose(kind.pose(moved).to_matrix(), kind.pose(y).to_matrix(), atol=1e-12)
    assert kind.role in (*POSE_ROLES, "camera") and in_space(kind.pose(x)).shape == (5, 7)


@pytest.mark.parametrize("kind", registry.vertex_types(), ids=lambda kind: kind.name)
def test_roles_are_known(kind):
    """One of the list; whoever is a pose has one."""
    assert kind.role in ROLES
    assert (kind.pose is not None) == (kind.role in (*POSE_ROLES, "camera"))


def test_a_bal_camera_is_where_it_projects_from():
    """A point at its centre has depth zero for every rotation."""
    kind = registry.vertex_type("VERTEX_CAM_BAL")
    x = some_storage(kind)
    from graphopt.types.g2o_maps import rotate_by_angle_axis

    centre = kind.pose(x).translation
    np.testing.assert_allclose(rotate_by_angle_axis(x[:, :3], centre) + x[:, 3:6], 0.0, atol=1e-14)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in registry.edge_types()
        if (getattr(kind, "relative_pose", None) or getattr(kind, "predict", 0))
        and kind.tag != "EDGE_SE2_POINTXY_OFFSET"  # g2o leaves the offset out of the error only
    ],
    ids=lambda kind: kind.name,
)
def test_predictions_leave_no_error(kind):
    """The estimate of each slot that an edge can predict makes its error vanish."""
    rng = np.random.default_rng(3)
    estimates = tuple(some_storage(vertex, i) for i, vertex in enumerate(kind.vertices))
    parameters = tuple(
        np.tile(np.array(parameter.identity), (5, 1))
        + (rng.uniform(0.1, 0.3) if parameter.storage_dim == 3 else 0.0)
        for parameter in kind.parameters
    )
    measurement = np.abs(rng.uniform(0.2, 0.6, (5, kind.measurement_dim)))
    group = {3: SE2, 7: SE3, 8: Sim3}.get(kind.measurement_dim)
    if group is not None and kind.residual_dim != 3:
        measurement = group.exp(rng.uniform(-0.4, 0.4, (5, group.tangent_dim))).storage
    slots = [slot for slot in range(len(kind.vertices)) if kind.can_predict(slot)]
    assert slots
    for slot in slots:
        found = kind.predicted(slot, estimates, parameters, measurement)
        others = (*estimates[:slot], found, *estimates[slot + 1 :])
        np.testing.assert_allclose(kind.error(others, parameters, measurement), 0.0, atol=1e-9)


def test_what_cannot_be_predicted_says_so():
    """A point that one pose measured does not say where the pose is."""
    kind = registry.edge_type("EDGE_SE2_XY")
    assert not kind.can_predict(0)
    with pytest.raises(GraphError, match="EDGE_SE2_XY says nothing about the estimate of its vertex 0"):
        kind.predicted(0, (np.zeros(3), np.zeros(2)), (), np.zeros(2))


# ---------------------------------------------------------------- types of users


def truth():
    """(N, 7) poses on a circle in space."""
    angle = np.arange(N) * 2 * np.pi / N
    turns = SE3.exp(np.stack([*np.zeros((5, N)), angle], axis=-1)).storage[:, 3:]
    return np.column_stack([np.cos(angle), np.sin(angle), 0.1 * angle, turns])


def own_graph(how):
    """A ring of a user's poses with exact measurements; the estimates but the first are the identity."""
    if how == "group":
        kind = graphopt.group_type("OwnPose", SE3)
    elif how == "inverse":
        kind = graphopt.group_type("OwnPose", SE3, side="left", stored_as="body_T_world")
    elif how == "similarity":
        kind = graphopt.group_type("OwnPose", Sim3)
    elif how == "parts":
        kind = graphopt.group_type("OwnPose", bias=2, cam_T_world=SE3)
    else:

        @graphopt.vertex_type(
            tag="VERTEX_OWN_POSE",
            tangent_dim=6,
            storage_dim=7,
            wrap=SE3,
            identity=SE3.identity_storage,
            pose="world_T_body",
        )
        def kind(storage, delta):
            return (SE3(storage) * SE3.exp(delta)).storage

    def relative(measured):
        return measured

    @graphopt.edge_type(
        tag="EDGE_OWN",
        vertices=(kind, kind),
        measurement_dim=8 if how == "similarity" else 7,
        wrap_measurement=Sim3 if how == "similarity" else SE3,
        relative_pose=relative,
    )
    def edge_own(a, b, z):
        if how == "parts":
            a, b = a.cam_T_world.inverse(), b.cam_T_world.inverse()
        if how == "inverse":
            a, b = a.inverse(), b.inverse()
        return (z.inverse() * (a.inverse() * b)).log()

    poses = truth()
    if how == "similarity":
        poses = np.column_stack([poses, np.ones(N)])
    group = Sim3 if how == "similarity" else SE3
    ends = np.stack([np.arange(N), (np.arange(N) + 1) % N], axis=1)
    steps = (group(poses[ends[:, 0]]).inverse() * group(poses[ends[:, 1]])).storage
    graph = graphopt.Graph()
    graph.add_vertices(kind, np.arange(N))
    graph.add_edges(edge_own, ends, steps)
    start = np.array(kind.identity)
    graph.vertex(0).estimate = kind.place(group(poses[0]), start)
    return graph, kind


HOWS = ("group", "inverse", "similarity", "parts", "function")


@pytest.mark.parametrize("how", HOWS)
def test_start_values_trajectories_and_pictures_of_own_poses(how, tmp_path):
    """`initialize` finds the truth; TUM, trajectory errors and the picture have the same poses."""
    graph, _ = own_graph(how)
    result = graphopt.initialize(graph)
    assert result.num_poses == N - 1 and not result.untouched
    assert graph.chi2() < 1e-18
    ids, poses = poses_of_graph(graph)
    assert ids.tolist() == list(range(N))
    np.testing.assert_allclose(SE3(poses).to_matrix(), SE3(truth()).to_matrix(), atol=1e-9)
    io.write(graph, tmp_path / "own.tum")
    _, again = io.read_tum(tmp_path / "own.tum")
    assert report.trajectory_errors(again, truth(), align="none").ate_max < 1e-6
    drawn = scene(graph)
    np.testing.assert_allclose(drawn.poses, truth()[:, :3], atol=1e-9)
    assert drawn.num_poses == N and len(drawn.lines) == N


@pytest.mark.parametrize("how", HOWS)
def test_own_poses_are_a_gauge_if_they_are_nothing_else(how):
    """One vertex is held, and the answer is exact; a pose with more numbers is left to the damping."""
    graph, _ = own_graph(how)
    graphopt.initialize(graph)
    places = choose_gauge(graph, graph.select())
    assert len(places) == (0 if how == "parts" else 1)
    summary = graphopt.optimize(graph)
    assert summary.final_chi2 < 1e-18 and len(summary.fixed_by_gauge) == len(places)


def test_points_of_ones_own_are_drawn_and_placed():
    """Role "point" and `predict`."""
    spot = graphopt.group_type("Spot", 2, role="point")

    @graphopt.edge_type(
        vertices=("VERTEX_SE2", spot), measurement_dim=2, predict={1: lambda pose, z: pose.act(z)}
    )
    def edge_spot(pose, point, z):
        return pose.inverse_act(point) - z

    graph = graphopt.Graph()
    graph.add_vertex("VERTEX_SE2", 0, [1.0, 2.0, np.pi / 2], fixed=True)
    graph.add_vertex(spot, 1)
    graph.add_edge(edge_spot, [0, 1], [1.0, 0.0])
    assert graphopt.initialize(graph).num_landmarks == 1
    assert graph.vertex(1).estimate == pytest.approx([1.0, 3.0])
    np.testing.assert_allclose(scene(graph).points, [[1.0, 3.0]])


def test_wrong_words_are_refused():
    """Roles and poses that there are not."""
    with pytest.raises(OptionError, match="role is 'post'"):
        graphopt.group_type("Bad", SE3, role="post")
    with pytest.raises(OptionError, match="expected 'world_T_body' or 'body_T_world'"):
        graphopt.group_type("Bad", 3, stored_as="world_T_body")


def test_graphs_without_poses_say_what_they_have():
    """And how a type gets one."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0])
    with pytest.raises(GraphError, match=r"type: VERTEX_XY.*pose="):
        poses_of_graph(graph)


@pytest.mark.parametrize(("group", "role"), [(SE2, "pose"), (SE3, "pose"), (Sim3, "similarity")])
def test_a_named_pose_alone_is_held_like_a_pose(group, role):
    """`group_type` with one named part: the gauge of a chain of such vertices is one of them."""
    kind = graphopt.group_type(f"Alone{group.__name__}", world_T_body=group)

    @graphopt.edge_type(
        tag=f"EDGE_ALONE_{group.__name__}",
        name=f"EdgeAlone{group.__name__}",
        vertices=(kind, kind),
        measurement_dim=group.storage_dim,
        wrap_measurement=group,
    )
    def edge(first, second, measured):
        return measured.between(first.world_T_body.between(second.world_T_body)).log()

    assert kind.role == role
    graph = graphopt.Graph()
    steps = np.array([group.exp(np.full(group.tangent_dim, 0.1 * k)).storage for k in range(4)])
    graph.add_vertices(kind, range(4), steps)
    graph.add_edges(edge, [[0, 1], [1, 2], [2, 3]], [group.identity_storage] * 3)
    summary = graphopt.optimize(graph, device="cpu")
    assert len(summary.fixed_by_gauge) == 1 and summary.final_chi2 < 1e-12
