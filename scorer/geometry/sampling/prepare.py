"""The materials of a scored pair in their common frame, and the paths that are compared."""

from __future__ import annotations

from dataclasses import dataclass

from scorer.geometry.sampling.calibration import voxel_edge
from scorer.geometry.sampling.materials import MovedMaterial, Placement
from scorer.geometry.sampling.paths import Paths, born, draw_rows
from scorer.liquid.tracers import materials_of
from world.reader import World


@dataclass(frozen=True, eq=False)
class Sampling:
    """Materials of both worlds, positions in reference radii, and the voxel edge for both.

    h : reference radii; None when the reference has no material that can be sampled.
    """

    h: float | None
    reference: tuple[MovedMaterial, ...]
    submission: tuple[MovedMaterial, ...]


def prepare_sampling(reference: World, submission: World, registration: Placement) -> Sampling:
    """Move both worlds' materials to the common frame and find the voxel edge on the reference's.

    A world's archives come in order of their names, then the tracers of a liquid without identity. Raises as
    ``scorer.liquid.tracers.materials_of``.
    """
    ours = tuple(
        MovedMaterial(archive, reference.extrinsic, registration.map_reference)
        for archive in materials_of(reference)
    )
    theirs = tuple(
        MovedMaterial(archive, submission.extrinsic, registration.map_submission)
        for archive in materials_of(submission)
    )
    return Sampling(voxel_edge(ours), ours, theirs)


def drawn_paths(sampling: Sampling, registration: Placement, reference: World) -> Paths | None:
    """The paths to compare; None when the reference has none."""
    if sampling.h is None:
        return None
    ours = born(sampling.reference, sampling.h, registration, reference)
    if not len(ours):
        return None
    theirs = born(sampling.submission, sampling.h, registration, reference)
    first, second = draw_rows(len(ours), len(theirs))
    return Paths(
        reference=ours.paths(registration, reference, first),
        submission=theirs.paths(registration, reference, second),
        counts=(len(ours), len(theirs)),
        reference_rows=first,
        submission_rows=second,
    )
