"""The metric table against the published lists."""

from __future__ import annotations

import pytest

from contract import metrics
from contract.cases import TRANSPARENT, kind, valid_segment
from contract.constants import edge_radius, sampled_frames, stride

RASTER_KEYS = {"dynamic_iou", "flow_distribution", "track2d_dtw", "depth_error", "uni3d_moge_scene"}
SYNTHETIC_ONLY = {"scene_3d", "trajectory_dtw", "emd_step", "occupancy_dtw", "uni3d_point_scene"}
REAL_ONLY = {"flow_distribution", "track2d_dtw", "depth_error", "uni3d_moge_scene"}


def test_eighteen_keys_in_thirteen_types() -> None:
    assert len(metrics.BY_KEY) == len(metrics.METRICS) == 18
    assert [entry.name for entry in metrics.TYPES] == [
        "dynamic_iou", "scene_3d", "trajectory", "dynamics", "occupancy", "interpenetration", "mesh", "uni3d",
        "flow", "track2d", "semantic", "geophys", "depth",
    ]  # fmt: skip
    assert {metric.type for metric in metrics.METRICS} == set(metrics.TYPE_BY_NAME)


def test_kinds_and_exclusions() -> None:
    assert {m.key for m in metrics.METRICS if m.kinds == ("synthetic",)} == SYNTHETIC_ONLY
    assert {m.key for m in metrics.METRICS if m.kinds == ("real",)} == REAL_ONLY
    assert {m.key for m in metrics.METRICS if m.excluded} == RASTER_KEYS
    assert len(TRANSPARENT) == 6


def test_only_depth_error_is_better_when_lower() -> None:
    down = [metric for metric in metrics.METRICS if not metric.higher_is_better]
    assert [(m.key, m.low, m.high, m.worst) for m in down] == [("depth_error", 0.0, 2.0, 2.0)]
    assert all(metric.worst == 0.0 for metric in metrics.METRICS if metric.higher_is_better)
    assert [down[0].unit(value) for value in (0.0, 1.0, 2.0)] == [1.0, 0.5, 0.0]


def test_main_families() -> None:
    families = {
        family: {metric.key for metric in metrics.METRICS if metric.family == family}
        for family in metrics.MAIN_FAMILIES
    }
    assert families == {
        "Perceptual": {"semantic_dinov3"},
        "2D Dynamics": {"dynamic_iou", "flow_distribution", "track2d_dtw"},
        "2.5D Geometry": {"depth_error"},
        "3D Geometry": {"scene_3d"},
        "3D Dynamics": {"trajectory_dtw", "emd_step"},
    }


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("dynamic_gt", {"dynamic_iou"}),
        ("dynamics_paths", {"dynamics"}),
        ("emd_step", {"dynamics"}),
        ("scene_error", {"scene_3d"}),
        ("fps", {"depth"}),
        ("semantic_per_frame", {"semantic"}),
        ("semantic_dinov3", {"semantic", "semantic_dinov3"}),
        ("geophys_dinov3_score", {"geophys", "geophys_dinov3"}),
        ("alignment", {"registration"}),
        ("geometry_failure", {"geometry"}),
        ("status", set()),
        ("reference", set()),
        ("causes", set()),
    ],
)
def test_owners(key: str, expected: set[str]) -> None:
    assert metrics.owners(key) == expected


@pytest.mark.parametrize(
    ("frames", "step", "length", "last"),
    [
        (1, 1, 1, 0), (300, 1, 300, 299), (301, 2, 151, 300), (600, 2, 300, 598), (601, 3, 201, 600),
        (900, 3, 300, 897), (901, 4, 226, 900), (3000, 10, 300, 2990), (9999, 34, 295, 9996),
    ],
)  # fmt: skip
def test_sampled_timeline(frames: int, step: int, length: int, last: int) -> None:
    timeline = sampled_frames(frames)
    assert (stride(frames), len(timeline), timeline[-1]) == (step, length, last)
    smaller = [k for k in range(1, step) if -(-frames // k) <= 300]
    assert not smaller


@pytest.mark.parametrize(
    ("size", "radius"), [((720, 1280), 4), ((1080, 1920), 6), ((480, 854), 2), ((512, 512), 2)]
)
def test_edge_radius(size: tuple[int, int], radius: int) -> None:
    assert edge_radius(0.0025, *size) == radius


def test_kind_is_the_text_before_the_slash() -> None:
    assert [kind(case) for case in ("real/a", "synthetic/a", "Real/a", "a", "real")] == [
        "real", "synthetic", "synthetic", "synthetic", "real",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\nb", "x ", "-x", "a;b"])
def test_invalid_segments(name: str) -> None:
    assert not valid_segment(name)


def test_transparent_case_names_are_valid() -> None:
    assert all(valid_segment(case.split("/")[1]) for case in TRANSPARENT)
