"""Discs, closing and bands, against the published tables, OpenCV and plain loops."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from contract.constants import BAND_FRACTION, CLOSE_FRACTION, edge_radius
from scorer.geometry.masks import close, disc, edge_band, pack

ROWS = {
    1: [1, 3, 1],
    2: [1, 5, 5, 5, 1],
    3: [1, 5, 7, 7, 7, 5, 1],
    4: [1, 7, 7, 9, 9, 9, 7, 7, 1],
    5: [1, 7, 9, 11, 11, 11, 11, 11, 9, 7, 1],
    6: [1, 7, 9, 11, 13, 13, 13, 13, 13, 11, 9, 7, 1],
}


def shifted(mask: np.ndarray, dy: int, dx: int, outside: bool) -> np.ndarray:
    height, width = mask.shape
    padded = np.full((height + 2 * abs(dy), width + 2 * abs(dx)), outside)
    padded[abs(dy) : abs(dy) + height, abs(dx) : abs(dx) + width] = mask
    return padded[abs(dy) + dy :, abs(dx) + dx :][:height, :width]


def naive(mask: np.ndarray, radius: int, grow: bool) -> np.ndarray:
    out = np.full(mask.shape, not grow)
    for dy, dx in np.argwhere(disc(radius)) - radius:
        out = out | shifted(mask, dy, dx, False) if grow else out & shifted(mask, dy, dx, True)
    return out


@pytest.mark.parametrize("radius", sorted(ROWS))
def test_row_widths(radius):
    assert disc(radius).sum(axis=1).tolist() == ROWS[radius]


@pytest.mark.parametrize("radius", range(1, 16))
def test_discs_are_opencvs_and_symmetric(radius):
    side = 2 * radius + 1
    element = disc(radius)
    assert (element[::-1] == element).all()
    assert (element[:, ::-1] == element).all()
    if radius <= 8:
        assert (element == cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))).all()


@pytest.mark.parametrize(
    ("height", "width", "radius"),
    [(720, 1280, 4), (1080, 1920, 6), (480, 854, 2), (512, 512, 2), (1, 1, 1), (120, 160, 1)],
)
def test_radii_of_image_sizes(height, width, radius):
    assert edge_radius(BAND_FRACTION, height, width) == radius
    assert edge_radius(CLOSE_FRACTION, height, width) == radius


@pytest.mark.parametrize("radius", [1, 2, 4, 9])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_close_and_band_equal_plain_loops(radius, share):
    mask = np.random.default_rng(radius).random((23, 31)) < share
    grown = naive(mask, radius, True)
    assert (close(mask, radius) == naive(grown, radius, False)).all()
    assert (edge_band(mask, radius) == (grown & ~naive(mask, radius, False))).all()


def test_the_image_border_is_no_edge():
    full = np.ones((9, 12), bool)
    assert not edge_band(full, 3).any()
    assert close(full, 3).all()
    assert not edge_band(~full, 3).any()
    assert not close(~full, 3).any()


def test_g6_band_and_closing():
    y, x = np.mgrid[:120, :160]
    assert edge_band((x - 60) ** 2 + (y - 60) ** 2 < 900, 1).sum() == 340
    assert edge_band((x - 60) ** 2 + (y - 60) ** 2 < 900, 3).sum() == 1116
    assert close((x % 7 == 0) & (y % 5 == 0), 4).sum() == 17756


def test_masks_with_odd_memory_are_read_right():
    mask = np.random.default_rng(0).random((40, 30)) < 0.3
    turned = np.asfortranarray(mask)[::-1]
    assert (edge_band(turned, 2) == edge_band(mask[::-1].copy(), 2)).all()


def test_packing_is_most_significant_bit_first_and_zero_padded():
    mask = np.array([[1, 0, 0, 0, 0, 0, 0, 1, 1], [0] * 9], bool)
    assert pack(mask).tolist() == [[0x81, 0x80], [0, 0]]
