"""Where a submission's world lies in the reference's: one similarity for all metrics that compare the two.

Two candidates are fitted, one to what the cameras see at frame 0 and one to the moving surfaces; that one is
kept whose frame 0 lies closer to the reference's through the reference's camera. Source: protocol 4dcb-1,
registration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from contract.constants import SEED
from scorer.geometry import multistart
from scorer.geometry.cloud import extent, frame_cloud, registered_cloud, subsample, visible_cloud
from scorer.geometry.distances import Cloud
from scorer.geometry.icp import fit_views
from scorer.geometry.similarity import Similarity, rotate
from scorer.geometry.surface import surfaces
from world.reader import World

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Clouds = tuple[Floats, Floats]

SCENE_POINTS = 65_536
"""Points of a frame-0 cloud that are compared."""
SCENE_CAP = 0.5
"""Reference radii beyond which a distance between frame-0 clouds counts no more."""
ICP_POINTS = 8192
FEWEST_PIXELS = 3
"""Covered pixels below which there is no camera candidate."""
CAMERA, MESH = "camera", "mesh"
ROUNDING = 1e-6
"""Radii by which two errors of float32 clouds differ between processors; closer ones are as good."""


@dataclass(frozen=True, eq=False)
class Registration:
    """The similarity x ↦ scale · rotation x + offset from the submission's camera frame to the reference's,
    metres, and the common frame: reference camera axes, origin ``centre``, unit ``radius``.

    rotation : (3, 3) float64. offset, centre : (3,) float64. radius : metres.
    residual : error of the candidate kept, capped Chamfer distance in radii.
    residual_start : error of the camera candidate, ``SCENE_CAP`` when there is none.
    selected : ``"camera"`` or ``"mesh"``. candidate_errors : error of each candidate that was fitted.
    clouds : the two frame-0 clouds that were compared, float32 (n, 3) and (m, 3), radii, m may be 0; None
        when they were not kept (:func:`scene_clouds` makes them again).
    """

    scale: float
    rotation: Doubles
    offset: Doubles
    centre: Doubles
    radius: float
    residual: float
    residual_start: float
    selected: str
    candidate_errors: Mapping[str, float]
    clouds: Clouds | None = None

    @property
    def similarity(self) -> Similarity:
        return Similarity(self.scale, self.rotation, self.offset)

    def map_reference(self, points: ArrayLike) -> Doubles:
        """Points (…, 3) of the reference's camera frame, metres, in radii; float64."""
        mapped: Doubles = (np.asarray(points, np.float64) - self.centre) / self.radius
        return mapped

    def map_submission(self, points: ArrayLike) -> Doubles:
        """Points (…, 3) of the submission's camera frame, its unit, in reference radii; float64."""
        return self.map_reference(self.similarity(points))

    def detail(self) -> dict[str, Any]:
        """The record ``alignment`` of ``reward.detail.json``."""
        cosine = (float(np.trace(self.rotation)) - 1.0) / 2.0
        return {
            "scale": self.scale,
            "rotation": self.rotation.tolist(),
            "rotation_deg": math.degrees(math.acos(min(1.0, max(-1.0, cosine)))),
            "offset": self.offset.tolist(),
            "residual": self.residual,
            "residual_start": self.residual_start,
            "centre": self.centre.tolist(),
            "radius": self.radius,
            "selected": self.selected,
            "candidate_errors": dict(self.candidate_errors),
        }


def register(reference: World, submission: World, threads: int | None = None) -> Registration:
    """Fit both candidates and keep the better one; the camera's when they are as good, to ``ROUNDING``.

    Of two perfect fits the last bit would choose otherwise, and that depends on the processor. The number of
    threads does not touch the result. Raises ``ValueError`` when the reference shows nothing at frame 0, or a
    single point; when neither candidate can be fitted; when the moving surfaces are single points; when
    coordinates are too large to work with.
    """
    visible = frame_cloud(reference, 0)
    centre, radius = extent(visible)
    goal = Cloud(_scene_points(visible, centre, radius))
    fitted: dict[str, tuple[Similarity, float, Floats]] = {}
    for name, placed in _candidates(reference, submission, visible, radius, threads):
        cloud = _scene_points(registered_cloud(reference, submission, placed), centre, radius)
        error = goal.bounded_chamfer(Cloud(cloud), SCENE_CAP, threads) if len(cloud) else SCENE_CAP
        fitted[name] = placed, error, cloud
    if not fitted:
        raise ValueError("no visible-camera or dynamic-mesh registration candidate")
    errors = {name: error for name, (_, error, _) in fitted.items()}
    selected = MESH if errors.get(MESH, math.inf) < errors.get(CAMERA, math.inf) - ROUNDING else CAMERA
    placed, residual, cloud = fitted[selected]
    return Registration(
        scale=placed.scale,
        rotation=placed.rotation,
        offset=placed.offset,
        centre=centre,
        radius=radius,
        residual=residual,
        residual_start=errors.get(CAMERA, SCENE_CAP),
        selected=selected,
        candidate_errors=errors,
        clouds=(goal.points, cloud),
    )


def scene_clouds(reference: World, submission: World, registration: Registration) -> Clouds:
    """Frame 0 of both worlds through the reference's camera, float32 (n, 3) and (m, 3), radii, each at most
    65,536 points; m may be 0.
    """
    if registration.clouds is not None:
        return registration.clouds
    seen = frame_cloud(reference, 0), registered_cloud(reference, submission, registration.similarity)
    gt, pred = (_scene_points(points, registration.centre, registration.radius) for points in seen)
    return gt, pred


def _candidates(
    reference: World, submission: World, visible: Floats, radius: float, threads: int | None
) -> list[tuple[str, Similarity]]:
    """Name and similarity of each candidate there is, the camera's first."""
    found = {
        CAMERA: _camera_candidate(visible, visible_cloud(submission, 0), radius, threads),
        MESH: _mesh_candidate(reference, submission, radius, threads),
    }
    return [(name, placed) for name, placed in found.items() if placed is not None]


def _camera_candidate(
    visible: Floats, theirs: Floats, radius: float, threads: int | None
) -> Similarity | None:
    """Fitted to frame 0 as each world's own camera sees it. Points too far away for float32 do not count."""
    theirs = theirs[np.isfinite(theirs).all(axis=1)]
    if len(theirs) < FEWEST_PIXELS:
        return None
    a, b = (
        subsample(points, ICP_POINTS, np.random.default_rng(SEED)) / np.float32(radius)
        for points in (visible, theirs)
    )
    fitted = fit_views(a, b, threads)
    return Similarity(fitted.scale, fitted.rotation, fitted.offset * radius)


def _mesh_candidate(
    reference: World, submission: World, radius: float, threads: int | None
) -> Similarity | None:
    """Fitted to the moving surfaces in world metres, then expressed between the two camera frames."""
    drawn = surfaces(reference, submission)
    if drawn is None:
        return None
    fitted = multistart.fit(*drawn, radius, threads)
    ours, theirs = reference.extrinsic, submission.extrinsic
    turn = ours[:3, :3].T
    rotation = turn @ fitted.rotation @ theirs[:3, :3]
    moved = fitted.scale * rotate(theirs[:3, 3], fitted.rotation) + fitted.offset
    return Similarity(fitted.scale, rotation, turn @ (moved - ours[:3, 3]))


def _scene_points(points: Floats, centre: Doubles, radius: float) -> Floats:
    """At most 65,536 of camera-frame ``points``, in radii, float32. Each cloud has a generator of its own."""
    kept = subsample(points, SCENE_POINTS, np.random.default_rng(SEED))
    with np.errstate(over="ignore"):
        return ((kept - centre) / radius).astype(np.float32)
