"""``tracks.npz``: a lattice of points of frame 0, followed through the video."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scorer.analytic.grid import COUNT, DRIFT, grid_queries, grid_step, inside
from scorer.estimators.cotracker3 import resized, to_full, to_tracking, tracking_size
from scorer.prefetch import Prefetch
from scorer.prepare.clip import Clip, Mask, batches
from scorer.prepare.output import Output
from scorer.prepare.values import require_shape

_AHEAD = 8


def step_member(height: int, width: int, mask: Mask | None, queries: int) -> int:
    """The member ``step``: informational, and with a mask not exactly a step that was used."""
    if mask is None:
        return grid_step(height, width, COUNT)
    return grid_step(height, width, max(queries - DRIFT, 1), mask)


def write_tracks(model: Any, clip: Clip, output: Output) -> None:
    """Track and write; in memory are the frames at tracking size.

    ``model.track`` takes uint8 (F', h, w, 3) and queries float32 (Q, 3) ``(0, x, y)`` in pixels of that size,
    and returns tracks float32 (Q, F', 2) in the same pixels and visibility bool (Q, F'). Raises
    ``ValueError`` when the annotation cannot be read.
    """
    mask = clip.mask()
    height, width = clip.size
    queries = grid_queries(height, width, COUNT, mask)
    small = tracking_size(height, width)
    tracks, visible = model.track(_reduced(clip, small, output), to_tracking(queries, clip.size, small))
    require_shape(tracks, (len(queries), clip.samples, 2), "tracks")
    require_shape(visible, (len(queries), clip.samples), "visibility")
    _require_finite(tracks, clip)
    on_mask = np.zeros(len(queries), np.bool_)
    if mask is not None:
        on_mask = inside(queries[:, 1:].astype(np.float64), mask)
    members = {
        "tracks": to_full(np.asarray(tracks, np.float32), clip.size, small),
        "visible": np.asarray(visible, np.bool_),
        "queries": queries,
        "on_mask": on_mask,
        "shape": np.array([clip.samples, height, width], np.int64),
        "step": np.int64(step_member(height, width, mask, len(queries))),
        "stride": np.int64(clip.stride),
        "model": output.provenance["model"],
        "tracking_resolution": np.array(small, np.int64),
    }
    output.provenance["grid"] = grid_used(height, width, mask, queries)
    output.archive(members, compressed=True)


def grid_used(height: int, width: int, mask: Mask | None, queries: NDArray[np.float32]) -> dict[str, Any]:
    """The steps behind ``queries``: of the coarse lattice and, unless the plain one was kept, the mask's."""
    plain = grid_queries(height, width, COUNT)
    if mask is None or np.array_equal(plain, queries):
        return {"step": grid_step(height, width, COUNT), "mask_step": None, "mask_usable": mask is not None}
    return {
        "step": grid_step(height, width, DRIFT),
        "mask_step": grid_step(height, width, COUNT - DRIFT, mask),
        "mask_usable": True,
    }


def _reduced(clip: Clip, size: tuple[int, int], output: Output) -> NDArray[np.uint8]:
    """All sampled frames at ``size``, uint8 (F', h, w, 3), by area."""
    reduced = np.empty((clip.samples, *size, 3), np.uint8)
    index = 0
    with Prefetch(batches(clip.frames(), _AHEAD)) as ahead:
        for batch in ahead:
            for image in batch:
                reduced[index] = resized(image, size)
                index += 1
                output.advance()
    return reduced


def _require_finite(tracks: NDArray[Any], clip: Clip) -> None:
    broken = ~np.isfinite(tracks).all(axis=(0, 2))
    if broken.any():
        raise ValueError(f"{clip.path}: frame {clip.frame(int(broken.argmax()))}: a track is not finite")
