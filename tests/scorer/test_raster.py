"""The rasteriser's published values, its interface, and input that is meant to break it."""

from __future__ import annotations

import numpy as np
import pytest
from raster_scenes import IDENTITY, K_S, scene_s

from scorer.geometry.raster import Raster, choose_device, rasterize, rasterize_raw, visible_faces

UNIT = np.eye(3)
QUAD_FACES = [[0, 1, 2], [0, 2, 3]]


def quad(low: float, high: float) -> np.ndarray:
    return np.array([[low, low, 1], [high, low, 1], [high, high, 1], [low, high, 1]])


def covered(face: np.ndarray) -> np.ndarray:
    rows, columns = np.nonzero(face >= 0)
    return face[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]


def test_g10_scene_s():
    expected = [{1: 2362, 2: 330, 3: 380}, {1: 2359, 2: 352, 3: 361}]
    for frame, counts in enumerate(expected):
        verts, faces, owner = scene_s(frame)
        depth, face = rasterize(verts, faces, K_S, IDENTITY, 48, 64, device="cpu")
        ids, pixels = np.unique(owner[face], return_counts=True)
        assert dict(zip(ids.tolist(), pixels.tolist(), strict=True)) == counts
        if frame == 0:
            assert depth.sum(dtype=np.float64) == pytest.approx(17257.271, abs=2e-3)
            assert depth.min() == pytest.approx(3.4999998, abs=1e-6)


def test_g11_top_and_left_edges_own_their_centres():
    # Edges at integer pixel corners: the diagonal runs through centres, the sides between them.
    depth, face = rasterize(quad(2, 6), QUAD_FACES, UNIT, IDENTITY, 8, 8, device="cpu")
    assert covered(face).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert np.argwhere(face >= 0)[0].tolist() == [2, 2]
    assert (depth[face >= 0] == 1).all()
    assert np.isposinf(depth[face < 0]).all()


def test_g12_edges_through_centres():
    verts = quad(2.5, 5.5)
    expected = [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    _, face = rasterize(verts, QUAD_FACES, UNIT, IDENTITY, 8, 8, device="cpu")
    assert covered(face).tolist() == expected
    assert np.argwhere(face >= 0)[0].tolist() == [2, 2]
    _, turned = rasterize(verts, [[2, 1, 0], [3, 2, 0]], UNIT, IDENTITY, 8, 8, device="cpu")
    assert (turned == face).all()


@pytest.mark.parametrize("copy", [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]])
def test_g12_the_later_of_two_equal_faces_wins_however_it_is_listed(copy):
    verts = quad(2.5, 5.5) * [1, 1, 1] + np.array([[0, 0, 0.1], [0, 0, 0.37], [0, 0, 0.71], [0, 0, 0.2]])
    verts[:, :2] *= verts[:, 2:]  # tilted, and in the same place on the screen
    _, face = rasterize(verts, QUAD_FACES, UNIT, IDENTITY, 8, 8, device="cpu")
    _, doubled = rasterize(verts, [*QUAD_FACES, copy], UNIT, IDENTITY, 8, 8, device="cpu")
    assert (doubled == np.where(face == 0, 2, face)).all()


def test_g13_a_triangle_through_the_camera_plane():
    depth, face = rasterize(
        [[-1, 0.2, -1], [1, 0.2, -1], [0, 0.2, 4]], [[0, 1, 2]], K_S, IDENTITY, 48, 64, device="cpu"
    )
    hit = face >= 0
    assert hit.sum() == 1088
    assert depth[hit].min() == pytest.approx(0.510638, abs=1e-6)
    assert depth[hit].max() == pytest.approx(3.428572, abs=1e-6)


def test_types_and_empty_input():
    for verts, faces in ((np.zeros((0, 3)), []), (quad(1, 2), np.zeros((0, 3), int)), ([], QUAD_FACES)):
        depth, face = rasterize(verts, faces, K_S, IDENTITY, 3, 5)
        assert depth.dtype == np.float32
        assert face.dtype == np.int32
        assert np.isposinf(depth).all()
        assert (face == -1).all()
        assert (visible_faces(verts, faces, K_S, IDENTITY, 3, 5) == face).all()
        raw = rasterize_raw(verts, faces, K_S, IDENTITY, 3, 5)
        assert raw.b0.shape == raw.b1.shape == (3, 5)
        assert not raw.b0.any()


def test_raw_holds_what_rasterize_gives_and_the_weights_rebuild_the_point():
    verts, faces, _ = scene_s(2)
    raw = rasterize_raw(verts, faces, K_S, IDENTITY, 48, 64, "cpu")
    depth, face = rasterize(verts, faces, K_S, IDENTITY, 48, 64, "cpu")
    assert isinstance(raw, Raster)
    assert (raw.depth == depth).all()
    assert (raw.face == face).all()
    assert (visible_faces(verts, faces, K_S, IDENTITY, 48, 64, "cpu") == face).all()
    weights = np.stack([raw.b0, raw.b1, 1 - raw.b0 - raw.b1], axis=-1)
    points = (weights[..., None] * verts[faces[face]]).sum(axis=2)
    u = 60 * points[..., 0] / points[..., 2] + 32
    v = 60 * points[..., 1] / points[..., 2] + 24
    assert np.abs(u - (np.arange(64) + 0.5)).max() < 2e-3 + 1 / 16
    assert np.abs(v - (np.arange(48)[:, None] + 0.5)).max() < 2e-3 + 1 / 16


def test_one_pixel_image():
    triangle = [[-1, -1, 2], [1, -1, 2], [0, 3, 2]]
    k = [[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]]
    depth, face = rasterize(triangle, [[0, 1, 2]], k, IDENTITY, 1, 1)
    assert face.tolist() == [[0]]
    assert depth.tolist() == [[2.0]]


def test_read_only_strided_and_wide_types_are_accepted():
    verts, faces, _ = scene_s(0)
    expected = rasterize(verts, faces, K_S, IDENTITY, 48, 64)[1]
    frozen = verts.copy()
    frozen.setflags(write=False)
    assert (rasterize(frozen, faces.astype(np.uint64), K_S, IDENTITY, 48, 64)[1] == expected).all()
    wide = np.zeros((len(verts), 6))
    wide[:, ::2] = verts
    swapped = np.asfortranarray(faces).astype(">i8")
    assert (rasterize(wide[:, ::2], swapped, K_S, IDENTITY, 48, 64)[1] == expected).all()


@pytest.mark.parametrize(
    ("faces", "text"),
    [
        ([[0, 1, 4]], "face 0 names vertices [0, 1, 4], but the vertices are 0 to 3"),
        ([[0, 1, 2], [0, -1, 2]], "face 1 names"),
        ([[0, 1, 2**40]], "face 0 names"),
        ([[0.0, 1.0, 2.0]], "integers"),
        ([[0, 1]], "shape"),
        ([0, 1, 2], "shape"),
        ([[True, False, True]], "integers"),
    ],
)
def test_faces_that_cannot_be_drawn(faces, text):
    with pytest.raises(ValueError) as caught:
        rasterize(quad(1, 2), faces, K_S, IDENTITY, 4, 4)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"verts": np.zeros((4, 2))}, "verts"),
        ({"verts": np.array([["a", "b", "c"]])}, "verts"),
        ({"intrinsics": np.eye(4)}, "intrinsics"),
        ({"extrinsic": np.eye(3)}, "extrinsic"),
        ({"extrinsic": np.full((4, 4), np.nan)}, "not finite"),
        ({"intrinsics": np.eye(3) * 1e300}, "not finite"),
        ({"height": 0}, "0x4"),
        ({"width": -1}, "4x-1"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_other_input_that_cannot_be_drawn(change, text):
    given = {"verts": quad(1, 2), "faces": QUAD_FACES, "intrinsics": UNIT, "extrinsic": IDENTITY,
             "height": 4, "width": 4}  # fmt: skip
    with pytest.raises(ValueError) as caught:
        rasterize(**{**given, **change})
    assert text in str(caught.value)


def test_cuda_is_refused_clearly_where_it_is_not_there():
    assert choose_device(None) == "cpu"
    with pytest.raises(RuntimeError, match="nvdiffrast"):
        rasterize(quad(1, 2), QUAD_FACES, UNIT, IDENTITY, 4, 4, device="cuda")


def test_corners_that_are_not_finite_take_only_their_own_triangles_away():
    verts, faces, _ = scene_s(0)
    bad = [[np.nan, 0, 5], [np.inf, 0, 5], [0, 0, -np.inf], [3e38, 3e38, 3e38], [1e300, 0, 0]]
    more = np.concatenate([verts.astype(float), bad])
    n = len(verts)
    hostile = [[n, 0, 1], [n + 1, 0, 1], [n + 2, 4, 5], [n, n + 1, n + 2], [n + 4, 0, 1]]
    _, face = rasterize(more, np.concatenate([hostile, faces]), K_S, IDENTITY, 48, 64)
    _, alone = rasterize(verts, faces, K_S, IDENTITY, 48, 64)
    assert (face - len(hostile) == alone).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e4, 1e15, 1e30, 1e38])
def test_huge_and_tiny_coordinates_are_safe(scale):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        verts = (rng.normal(size=(300, 3)) * scale).astype(np.float32)
    verts[::7] *= np.float32(1e-20)
    faces = rng.integers(0, 300, (2000, 3))
    depth, face = rasterize(verts, faces, K_S, IDENTITY, 37, 53)
    assert ((face >= -1) & (face < 2000)).all()
    assert (np.isposinf(depth) == (face < 0)).all()


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.eye(3) * 1e37, -np.eye(3), np.eye(3) * 1e-37])
def test_odd_cameras_are_safe(matrix):
    verts, faces, _ = scene_s(0)
    _, face = rasterize(verts, faces, matrix, IDENTITY, 16, 16)
    assert ((face >= -1) & (face < len(faces))).all()


def test_behind_the_camera_beside_the_view_and_nearer_than_the_near_plane():
    triangle = np.array([[-1, -1, 0], [1, -1, 0], [0, 2, 0]], float)
    for offset in ([0, 0, -2], [50, 0, 2], [0, -50, 2], [0, 0, 0]):
        assert (rasterize(triangle + offset, [[0, 1, 2]], K_S, IDENTITY, 48, 64)[1] == -1).all()
    small = triangle * 1e-3
    assert (rasterize(small + np.array([0, 0, 0.9e-3]), [[0, 1, 2]], K_S, IDENTITY, 48, 64)[1] == -1).all()
    assert (rasterize(small + np.array([0, 0, 1.1e-3]), [[0, 1, 2]], K_S, IDENTITY, 48, 64)[1] == 0).any()
    assert (rasterize(triangle * 1e7 + [0, 0, 1e7], [[0, 1, 2]], K_S, IDENTITY, 48, 64)[1] == 0).any()


def test_degenerate_faces_draw_nothing():
    verts = quad(1, 3)
    faces = [[0, 0, 0], [0, 1, 1], [0, 0, 2]]
    assert (rasterize(verts, faces, UNIT, IDENTITY, 8, 8)[1] == -1).all()


def test_skew_in_both_off_diagonal_entries_is_honoured():
    k = np.array([[10, 2, 1], [3, 10, 2], [7, 7, 7]], float)
    point = np.array([0.3, 0.2, 1.0])
    u = k[0] @ point
    v = k[1] @ point
    around = point + np.array([[-0.06, -0.06, 0], [0.06, -0.06, 0], [0, 0.09, 0]])
    _, face = rasterize(around, [[0, 1, 2]], k, IDENTITY, 16, 16)
    assert face[int(v), int(u)] == 0
