"""Motion continuity: how far the object's centre is from where it should be (spec 70 §7.8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Centre = tuple[float, float]


@dataclass(frozen=True)
class Motion:
    """scores : one a frame, None where a centre is missing. area : mean reference area in pixels."""

    scores: list[float | None]
    area: float
    reference: list[Centre | None]
    predicted: list[Centre | None]

    def metadata(self) -> dict[str, Any]:
        """As it stands in ``result.json``."""
        empty = [None, None]
        return {
            "average_mask_area": self.area,
            "normalizer_sqrt_average_mask_area": math.sqrt(self.area) if self.area > 0 else None,
            "gt_center_xy": [list(centre) if centre else empty for centre in self.reference],
            "pred_center_xy": [list(centre) if centre else empty for centre in self.predicted],
        }


def centre(mask: np.ndarray) -> Centre | None:
    """Mean (x, y) of the true pixels; None when there is none."""
    y, x = np.nonzero(mask)
    return (float(x.mean()), float(y.mean())) if x.size else None


def motion_continuity(reference: np.ndarray, predicted: np.ndarray, start: int) -> Motion:
    """``exp(-distance of centres / sqrt(mean reference area))`` for each frame from ``start`` on.

    reference, predicted : boolean (T, H, W). A reference mask that is empty counts as area 0 in the mean.
    """
    area = float(np.mean(reference[start:].sum((1, 2), dtype=np.int64)))
    scores: list[float | None] = []
    centres: list[tuple[Centre | None, Centre | None]] = []
    for frame in range(len(reference)):
        wanted = found = None
        if frame >= start and area > 0:
            wanted, found = centre(reference[frame]), centre(predicted[frame])
        if wanted is None or found is None:
            scores.append(None)
            centres.append((None, None))
            continue
        distance = math.hypot(wanted[0] - found[0], wanted[1] - found[1])
        scores.append(math.exp(-distance / math.sqrt(area)))
        centres.append((wanted, found))
    return Motion(scores, area, [pair[0] for pair in centres], [pair[1] for pair in centres])
