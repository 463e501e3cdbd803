"""Outlines of single pieces."""

import numpy as np
import pytest

from harness.baseline.outlines import ANGLES, LEAST_RADIUS, outline


def filled(radii: np.ndarray, centre: tuple[float, float], shape: tuple[int, int]) -> np.ndarray:
    """Cells whose middle lies inside an outline: by angle, then by the edge between two corners."""
    rows, columns = np.mgrid[: shape[0], : shape[1]] + 0.5
    x, y = columns - centre[0], rows - centre[1]
    turn = np.arctan2(y, x) % (2 * np.pi) / (2 * np.pi) * ANGLES
    before = np.floor(turn).astype(int) % ANGLES
    after = (before + 1) % ANGLES
    angles = 2 * np.pi * np.arange(ANGLES) / ANGLES
    px, py = radii * np.cos(angles), radii * np.sin(angles)
    edge = (px[after] - px[before]) * (y - py[before]) - (py[after] - py[before]) * (x - px[before])
    return edge >= 0


def agreement(left: np.ndarray, right: np.ndarray) -> float:
    return float((left & right).sum() / (left | right).sum())


@pytest.mark.parametrize("radius", [3, 8, 20, 60])
def test_disc(radius: int) -> None:
    rows, columns = np.mgrid[:140, :150] + 0.5
    mask = (columns - 71.3) ** 2 + (rows - 66.8) ** 2 < radius**2
    radii = outline(mask, (71.3, 66.8))
    assert radii.shape == (ANGLES,)
    assert radii.dtype == np.float32
    assert np.abs(radii - radius).max() <= 1.0
    assert agreement(filled(radii, (71.3, 66.8), mask.shape), mask) > 0.9


def test_rectangle_star_and_dented_shapes() -> None:
    rows, columns = np.mgrid[:120, :120] + 0.5
    x, y = columns - 60, rows - 60
    turn = np.arctan2(y, x)
    for mask in (
        (np.abs(x) < 40) & (np.abs(y) < 15),
        np.hypot(x, y) < 30 + 12 * np.cos(5 * turn),
        (np.hypot(x, y) < 45) & ~((x > 0) & (np.abs(y) < 12)),
    ):
        assert agreement(filled(outline(mask, (60.0, 60.0)), (60.0, 60.0), mask.shape), mask) > 0.9


def test_specks_far_from_the_body_do_not_stretch_the_outline() -> None:
    rows, columns = np.mgrid[:100, :100] + 0.5
    mask = np.hypot(columns - 40, rows - 50) < 15
    mask[49:51, 90:93] = True
    assert outline(mask, (40.0, 50.0)).max() < 17


def test_a_single_cell_and_a_centre_outside_still_have_area() -> None:
    radii = outline(np.ones((1, 1), dtype=np.bool_), (0.5, 0.5))
    assert (radii >= LEAST_RADIUS).all()
    mask = np.zeros((5, 5), dtype=np.bool_)
    mask[4, 4] = True
    assert (outline(mask, (0.5, 0.5)) >= LEAST_RADIUS).all()
