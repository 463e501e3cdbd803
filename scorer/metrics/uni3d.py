"""Uni3D: do the frame-0 surfaces of the submission and of the reference look alike to a point-cloud model?

Statistics: one feature vector a cloud. The submission's cloud and, on a synthetic case, the reference
world's come from the geometry pass, which writes ``uni3d_clouds.npz``; on a real case the reference is MoGe's
point map of the video. Formula: the cosine c of two features; the reward maps it to (1 + c) / 2. Source:
protocol 4dcb-1, Uni3D.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contract.constants import SEED
from contract.metrics import CLOUDS
from contract.names import MOGE
from contract.states import NO_PAIRING, REFERENCE_EMPTY, case_state
from scorer.arrays import file_name
from scorer.estimates_features import moge_points
from scorer.estimators.uni3d_cloud import normalised
from scorer.geometry.cloud import extent, frame_cloud, subsample
from scorer.geometry.registration import SCENE_POINTS, scene_clouds
from scorer.metrics.base import Measurement
from scorer.metrics.render_features import FeatureFault
from scorer.scene import Scene
from scorer.subject import Subject
from world.npz import Archive
from world.reader import World

Cloud = NDArray[Any]
Floats = NDArray[np.float32]

POINT, MOGE_KEY = "uni3d_point_scene", "uni3d_moge_scene"
SUBMISSION, REFERENCE = "submission_scene", "point_scene"


class Encoder(Protocol):
    """What a point-cloud model is here."""

    def encode(self, clouds: Floats) -> Floats:
        """Unit features float32 (n, D) of normalised clouds float32 (n, 10000, 3)."""


def clouds(scene: Scene) -> Measurement:
    """The clouds to compare, for the model pass: Scene 3D's two registered ones where there is a reference
    world, else the submission's own. Raises what the registration and ``frame_cloud`` raise.
    """
    if scene.reference is None:
        return Measurement({}, {CLOUDS: {SUBMISSION: lone_cloud(scene.submission)}})
    gt, pred = scene_clouds(scene.reference, scene.submission, scene.registration)
    return Measurement({}, {CLOUDS: {SUBMISSION: pred, REFERENCE: gt}})


def lone_cloud(world: World) -> NDArray[np.float64]:
    """What the world's own camera sees at frame 0: at most 65,536 points float64 (n, 3), in its camera frame,
    centred and in radii of the whole cloud.
    """
    cloud = frame_cloud(world)
    centre, radius = extent(cloud)
    drawn = subsample(cloud, SCENE_POINTS, np.random.default_rng(SEED))
    return (drawn.astype(np.float64) - centre) / radius


def measure(subject: Subject, model: Encoder) -> Measurement:
    """Compare the submission's cloud with the reference of the case's kind.

    A reference that is missing leaves its key uncomputable, and so does an empty cloud. Raises
    ``EstimateError`` when ``moge.npz`` is damaged.
    """
    with Archive.open(subject.results / file_name(CLOUDS)) as archive:
        stored = {name: archive.read(name) for name in archive.names}
    ours = feature(stored[SUBMISSION], model)
    features = {SUBMISSION: ours}
    detail: dict[str, Any] = {}
    causes: dict[str, str] = {}

    def compare(key: str, member: str, reference: Cloud | None, missing: str) -> None:
        theirs = None if reference is None else feature(reference, model)
        features[member] = theirs
        detail[key] = cosine(ours, theirs)
        if theirs is None and (reference is None or key == MOGE_KEY):
            detail[key.removesuffix("_scene") + "_failure"] = missing
            causes[key] = REFERENCE_EMPTY
        else:
            causes[key] = NO_PAIRING

    if case_state(POINT, subject.case) is None:
        compare(POINT, "reference_point_scene", stored.get(REFERENCE), "point reference missing")
    if case_state(MOGE_KEY, subject.case) is None:
        there = (subject.estimates / MOGE).exists()
        points = moge_points(subject.estimates) if there else None
        compare(
            MOGE_KEY, "reference_moge_scene", points,
            "moge reference has no valid point" if there else "moge reference missing",
        )  # fmt: skip
    found = {name: row for name, row in features.items() if row is not None}
    return Measurement(detail, {"uni3d": found}, causes=causes)


def feature(cloud: Cloud, model: Encoder) -> Floats | None:
    """Feature float32 (D,) of a cloud (n, 3), None of one without finite points.

    Clouds go through the network one by one: which others are compared does not touch the result. Raises
    ``ValueError`` when float32 does not hold the cloud, ``FeatureFault`` when the network gives no numbers.
    """
    if not np.isfinite(cloud).all(axis=1).any():
        return None
    row: Floats = model.encode(normalised(cloud, np.random.default_rng(SEED))[None])[0]
    if not np.isfinite(row).all():
        raise FeatureFault("uni3d: the network gives features that are not finite")
    return row


def cosine(a: Floats | None, b: Floats | None) -> float | None:
    """Dot product of two unit vectors (D,), within −1 … 1; None when either is missing."""
    if a is None or b is None:
        return None
    return float(np.clip(np.dot(a.astype(np.float64), b.astype(np.float64)), -1.0, 1.0))
