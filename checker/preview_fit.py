"""Numbers beside the preview: what the geometry covers, and whether its edges lie on the render's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

REACH = 8
"""Pixels by which the geometry is shifted, each way, in search of a better fit."""


@dataclass(frozen=True)
class Fit:
    """Best shift (dx, dy) in pixels of the geometry's outlines onto the render's edges.

    here, best : mean brightness step of the render under the outlines, unshifted and at the best shift.
    """

    dx: int
    dy: int
    here: float
    best: float


def outlines(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Pixels (H, W) whose right or lower neighbour shows another id."""
    edge = np.zeros(ids.shape, bool)
    edge[:, :-1] |= ids[:, 1:] != ids[:, :-1]
    edge[:-1] |= ids[1:] != ids[:-1]
    return edge


def fit(ids: npt.NDArray[np.int64], image: npt.NDArray[np.uint8]) -> Fit | None:
    """Compare outlines of ids (H, W) with brightness steps of image (H, W, 3); None without any of either.

    Of equally good shifts the shortest wins.
    """
    grey = image.astype(np.float32).mean(axis=2)
    step = np.zeros_like(grey)
    step[:, :-1] = np.abs(grey[:, 1:] - grey[:, :-1])
    step[:-1] = np.maximum(step[:-1], np.abs(grey[1:] - grey[:-1]))
    rows, columns = np.nonzero(outlines(ids))
    if not len(rows) or not step.any():
        return None
    padded = np.pad(step, REACH)
    shifts = [(dx, dy) for dy in range(-REACH, REACH + 1) for dx in range(-REACH, REACH + 1)]
    shifts.sort(key=lambda shift: (shift[0] ** 2 + shift[1] ** 2, shift))
    scores = [float(padded[rows + REACH + dy, columns + REACH + dx].mean()) for dx, dy in shifts]
    best = int(np.argmax(scores))
    return Fit(*shifts[best], here=scores[0], best=scores[best])


def describe(ids: npt.NDArray[np.int64], image: npt.NDArray[np.uint8]) -> list[str]:
    """Lines for a reader."""
    shown, counts = np.unique(ids[ids != 0], return_counts=True)
    lines = [f"geometry covers {100 * counts.sum() / ids.size:.1f} % of the picture"]
    for identifier, count in list(zip(shown.tolist(), counts.tolist(), strict=True))[:20]:
        lines.append(f"  mesh {identifier}: {count} pixels ({100 * count / ids.size:.1f} %)")
    if len(shown) > 20:
        lines.append(f"  and {len(shown) - 20} more meshes")
    found = fit(ids, image)
    if found is None:
        lines.append("no edges to compare")
    elif (found.dx, found.dy) == (0, 0):
        lines.append(f"outlines fit the render best where they are (mean step {found.here:.1f})")
    else:
        lines.append(
            f"outlines would fit the render better shifted by ({found.dx:+d}, {found.dy:+d}) pixels "
            f"(mean step {found.best:.1f} instead of {found.here:.1f})"
        )
    return lines
