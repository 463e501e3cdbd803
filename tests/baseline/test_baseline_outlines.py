"""Outlines of single pieces, and what becomes of pieces that no outline fits."""

import numpy as np
import pytest

from harness.baseline.parting import GOOD_FIT, Seed, fit, parts
from harness.baseline.stars import ANGLES, LEAST_RADIUS, middle, outline, reach


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
        assert agreement(filled(outline(mask, (60.0, 60.0)), (60.0, 60.0), mask.shape), mask) > 0.88


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


def test_reach_meets_the_corners_and_runs_straight_between_them() -> None:
    radii = np.random.default_rng(0).uniform(1, 9, ANGLES).astype(np.float32)
    corners = 2 * np.pi * np.arange(-ANGLES, 2 * ANGLES) / ANGLES
    np.testing.assert_allclose(reach(radii, corners), np.tile(radii, 3), rtol=1e-5)
    between = reach(radii, corners[:-1] + np.pi / ANGLES)
    np.testing.assert_allclose(between, (np.tile(radii, 3)[:-1] + np.tile(radii, 3)[1:]) / 2, rtol=1e-5)


def test_the_middle_lies_in_the_mask() -> None:
    rows, columns = np.mgrid[:40, :40] + 0.5
    ring = np.abs(np.hypot(columns - 20, rows - 20) - 15) < 3
    column, row = middle(ring)
    assert ring[int(row), int(column)]


def discs(*centres: tuple[float, float], radius: float = 12) -> np.ndarray:
    rows, columns = np.mgrid[:60, :120] + 0.5
    return np.any([np.hypot(columns - x, rows - y) < radius for x, y in centres], axis=0)


def test_what_one_outline_fits_stays_whole() -> None:
    mask = discs((40, 30))
    assert fit(mask) > 0.9
    assert len(parts(mask, [], 10)) == 1
    assert len(parts(mask, [Seed((38.0, 30.0), np.full(ANGLES, 5.0, np.float32))] * 2, 10)) == 1


def test_what_no_outline_fits_is_halved() -> None:
    mask = discs((60, 30), radius=28) & ~discs((60, 30), radius=20)
    assert fit(mask) < 0.7
    found = parts(mask, [], 10)
    assert 2 <= len(found) <= 8
    assert (np.sum(found, axis=0) == mask).all()  # every cell once
    assert np.average([fit(part) for part in found], weights=[part.sum() for part in found]) > 0.8


def test_followed_things_come_apart_where_they_are_expected() -> None:
    mask = discs((18, 30), radius=14) | discs((100, 30), radius=9)
    mask[28:32, 18:100] = True
    assert fit(mask) < GOOD_FIT
    seeds = [
        Seed((19.0, 30.0), np.full(ANGLES, 14.0, np.float32)),
        Seed((99.0, 30.0), np.full(ANGLES, 9.0, np.float32)),
        Seed((5.0, 5.0), np.full(ANGLES, 9.0, np.float32)),  # elsewhere
    ]
    left, right = parts(mask, seeds, 10)
    assert mask[:, :30].sum() == left[:, :30].sum()
    assert mask[:, 91:].sum() == right[:, 91:].sum()


def test_specks_are_not_halved() -> None:
    mask = np.zeros((20, 20), dtype=np.bool_)
    mask[0, :] = mask[:, 0] = True
    assert len(parts(mask, [], 39)) == 1
