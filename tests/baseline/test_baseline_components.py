"""Pictures of true and false: every operation against scipy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage

from harness.baseline.components import (
    box_max,
    box_mean,
    box_sum,
    boxes,
    close,
    faintest,
    filled,
    grow,
    label,
    majority,
    strongest,
)

masks = arrays.arrays(np.bool_, arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=24))
radii = st.integers(0, 4)


@settings(max_examples=80, deadline=None)
@given(mask=masks)
def test_labels_are_scipys(mask: np.ndarray) -> None:
    labels, count = label(mask)
    expected, number = ndimage.label(mask, np.ones((3, 3)))
    assert labels.dtype == np.int32
    assert count == number
    np.testing.assert_array_equal(labels, expected)
    found = [
        (rows.start, rows.stop, columns.start, columns.stop)
        for rows, columns in ndimage.find_objects(expected)
    ]
    np.testing.assert_array_equal(boxes(labels, count), np.array(found).reshape(-1, 4))


def test_a_spiral_is_one_piece() -> None:
    mask = np.zeros((41, 41), dtype=np.bool_)
    row, column, direction, run = 20, 20, 0, 2
    while 0 < row < 40 and 0 < column < 40:
        step = [(0, 1), (1, 0), (0, -1), (-1, 0)][direction % 4]
        for _ in range(run):
            if 0 <= row < 41 and 0 <= column < 41:
                mask[row, column] = True
                row, column = row + step[0], column + step[1]
        direction, run = direction + 1, run + 2
    assert label(mask)[1] == ndimage.label(mask, np.ones((3, 3)))[1] == 1


@settings(max_examples=60, deadline=None)
@given(mask=masks, radius=radii)
def test_growing_and_closing_are_scipys(mask: np.ndarray, radius: int) -> None:
    square = np.ones((2 * radius + 1, 2 * radius + 1))
    np.testing.assert_array_equal(grow(mask, radius), ndimage.binary_dilation(mask, square))
    grown = ndimage.binary_dilation(mask, square)
    np.testing.assert_array_equal(close(mask, radius), ndimage.binary_erosion(grown, square, border_value=1))


@settings(max_examples=60, deadline=None)
@given(mask=masks, radius=radii, seed=st.integers(0, 99))
def test_sums_and_maxima_are_scipys(mask: np.ndarray, radius: int, seed: int) -> None:
    picture = np.random.default_rng(seed).uniform(0, 255, mask.shape).astype(np.float32)
    square = np.ones((2 * radius + 1, 2 * radius + 1))
    total = ndimage.convolve(picture.astype(np.float64), square, mode="constant")
    cells = ndimage.convolve(np.ones(mask.shape), square, mode="constant")
    np.testing.assert_allclose(box_sum(picture, radius), total, rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(box_mean(picture, radius), total / cells, rtol=1e-5, atol=1e-2)
    largest = ndimage.maximum_filter(picture, 2 * radius + 1, mode="constant")
    np.testing.assert_array_equal(box_max(picture, radius), largest)
    votes = ndimage.convolve(mask.astype(int), np.ones((3, 3), dtype=int), mode="constant")
    np.testing.assert_array_equal(majority(mask), votes >= 5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1)])
def test_nothing_set_gives_no_piece(shape: tuple[int, int]) -> None:
    labels, count = label(np.zeros(shape, dtype=np.bool_))
    assert count == 0
    assert not labels.any()
    assert boxes(labels, 0).shape == (0, 4)


@settings(max_examples=60, deadline=None)
@given(mask=masks)
def test_filling_is_scipys(mask: np.ndarray) -> None:
    # Unset pieces touch by corners here, so holes are closed off by sides: the plain cross for the set cells.
    np.testing.assert_array_equal(filled(mask, 1.0), ndimage.binary_fill_holes(mask, np.ones((3, 3))))
    np.testing.assert_array_equal(filled(mask, 0.0), mask)


def test_only_small_holes_are_filled() -> None:
    mask = np.ones((20, 20), dtype=np.bool_)
    mask[2:4, 2:4] = mask[8:16, 8:16] = mask[0, 19] = False
    full = filled(mask, 0.02)
    assert full[2:4, 2:4].all()
    assert not full[8:16, 8:16].any()
    assert not full[0, 19]


def test_channels_are_compared_like_numpy_does() -> None:
    colours = np.random.default_rng(0).normal(size=(4, 5, 3))
    np.testing.assert_array_equal(strongest(colours), colours.max(axis=-1))
    np.testing.assert_array_equal(faintest(colours), colours.min(axis=-1))
