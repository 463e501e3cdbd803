"""What a metric gets to see: the submission, the reference and the files beside them, each opened on first
use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from world.reader import World

if TYPE_CHECKING:
    from scorer.geometry.registration import Registration
    from scorer.geometry.sampling import Paths, Sampling


@dataclass(frozen=True)
class Scene:
    """One entry of a manifest, resolved to paths.

    case : ``<kind>/<case>``.
    world_path : the submission's world directory.
    reference_path : the reference world directory, or None when the case has none.
    annotation_path : ``annotation/dynamic_mask.npz``, or None when absent.
    estimates_path : directory of the prepare stage's files (may be absent).
    video_path : the reference video.
    """

    case: str
    world_path: Path
    reference_path: Path | None
    annotation_path: Path | None
    estimates_path: Path
    video_path: Path

    @cached_property
    def submission(self) -> World:
        return World(self.world_path)

    @cached_property
    def reference(self) -> World | None:
        return None if self.reference_path is None else World(self.reference_path)

    @cached_property
    def registration(self) -> Registration:
        """The submission placed in the reference's frame. Raises ``ValueError`` when it cannot be, or when
        the case has no reference world, and what ``scorer.liquid.tracers.materials_of`` does.
        """
        # scipy and numba are loaded by the metrics that need them, not by everything that names a scene.
        from scorer.geometry.registration import register
        from scorer.liquid.tracers import materials_of

        if self.reference is None:
            raise ValueError(f"{self.case} has no reference world to register with")
        materials_of(self.submission)  # the protocol registers no world whose liquid cannot be followed
        return register(self.reference, self.submission)

    @cached_property
    def sampling(self) -> Sampling:
        """Both worlds' materials in the reference's frame, and the voxel edge. Raises as ``registration``."""
        from scorer.geometry.sampling import prepare_sampling

        registration = self.registration
        assert self.reference is not None
        return prepare_sampling(self.reference, self.submission, registration)

    @cached_property
    def paths(self) -> Paths | None:
        """The paths of material to compare, as many of each side, 8192 at most (none of a submission without
        any); None when the reference has none. Raises as ``registration``.
        """
        from scorer.geometry.sampling import drawn_paths

        sampling = self.sampling
        assert self.reference is not None
        return drawn_paths(sampling, self.registration, self.reference)
