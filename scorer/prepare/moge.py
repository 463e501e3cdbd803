"""``moge.npz``: the points that frame 0 shows, in the camera's frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from scorer.estimators.moge3 import REFINE_STEPS, RESOLUTION_LEVEL
from scorer.prepare.clip import Clip
from scorer.prepare.output import Output
from scorer.prepare.values import require_shape


def write_moge(model: Any, clip: Clip, output: Output) -> None:
    """Estimate and write.

    ``model.points`` takes uint8 (H, W, 3) and returns points float32 (H, W, 3) (axes right, down, forward),
    mask bool (H, W) and intrinsics float32 (3, 3) normalised to the unit image.
    """
    points, mask, intrinsics = model.points(clip.first())
    require_shape(points, (*clip.size, 3), "points")
    require_shape(mask, clip.size, "mask")
    require_shape(intrinsics, (3, 3), "intrinsics")
    mask = np.asarray(mask, np.bool_)
    members = {
        "points": np.where(mask[..., None], np.asarray(points, np.float32), np.float32(np.nan)),
        "mask": mask,
        "intrinsics": np.asarray(intrinsics, np.float32),
        "shape": np.array(clip.size, np.int64),
        "model": output.provenance["model"],
        "resolution_level": np.int64(RESOLUTION_LEVEL),
        "refine_steps": np.int64(REFINE_STEPS),
    }
    output.archive(members, compressed=True)
    output.advance()
