"""The warped distance against its definition, and that no shortcut touches a bit of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_dtw import naive_dtw, naive_matrix

from scorer.geometry.dtw import dtw_matrix, dtw_pairs, pack


def on_x(*values: float) -> np.ndarray:
    path = np.zeros((1, len(values), 3), np.float32)
    path[0, :, 0] = values
    return path


def golden() -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(3)
    a = np.cumsum(g.normal(size=(3, 12, 3)).astype(np.float32), axis=1)
    b = a + np.float32(0.3) * g.normal(size=a.shape).astype(np.float32)
    b[0, 5:] = np.nan
    a[2, :3] = np.nan
    return a, b


def walks(count: int, length: int, seed: int, spread: float = 1.0, step: float = 0.05) -> np.ndarray:
    g = np.random.default_rng(seed)
    start = spread * g.normal(size=(count, 1, 3))
    return (start + np.cumsum(step * g.normal(size=(count, length, 3)), axis=1)).astype(np.float32)


def with_gaps(paths: np.ndarray, seed: int, share: float = 0.4) -> np.ndarray:
    paths = paths.copy()
    paths[np.random.default_rng(seed).random(paths.shape[:2]) < share] = np.nan
    return paths


def test_pairs_have_the_golden_values() -> None:
    assert dtw_pairs(*golden()) == pytest.approx([1.5832707, 0.43591896, 0.9294742], rel=1e-6)


def test_matrix_has_the_golden_values() -> None:
    expected = [
        [1.5832707, 11.046001, 4.358019],
        [8.956052, 0.43591896, 7.9717],
        [3.0630932, 7.7988853, 0.9294742],
    ]
    np.testing.assert_allclose(dtw_matrix(*golden()), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 1, 2, 3), (3, 2, 1, 0), 1.6),
        ((0, 1, 2, 3, 4), (0, 0, 1, 2, 3, 4.5), 1 / 12),
        ((0, 0, 0, 0), (1,) * 7, 1.0),
        ((0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 2), 0.1),
        ((5,), (2,), 3.0),
    ],
)
def test_small_paths(a: tuple[float, ...], b: tuple[float, ...], expected: float) -> None:
    assert dtw_pairs(on_x(*a), on_x(*b))[0] == pytest.approx(expected, rel=1e-6)
    assert dtw_matrix(on_x(*a), on_x(*b))[0, 0] == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_any_paths_agree_with_the_definition(seed: int, la: int, lb: int, whole: bool) -> None:
    """Small whole numbers make ties in nearly every cell."""
    g = np.random.default_rng(seed)
    draw = (
        (lambda *shape: g.integers(0, 3, shape).astype(float))
        if whole
        else (lambda *shape: g.normal(size=shape))
    )
    a = with_gaps(draw(5, la, 3).astype(np.float32), seed)
    b = with_gaps(draw(4, lb, 3).astype(np.float32), seed + 1)
    np.testing.assert_allclose(dtw_matrix(a, b), naive_matrix(a, b), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        dtw_pairs(a[:4], b), [naive_dtw(x, y) for x, y in zip(a[:4], b, strict=True)], rtol=1e-6, atol=1e-7
    )


def test_more_pairs_than_lanes_of_every_length() -> None:
    """Blocks mix odd and even lengths, and the last one is not full."""
    a, b = with_gaps(walks(21, 20, 1), 2), with_gaps(walks(17, 15, 3), 4)
    np.testing.assert_allclose(dtw_matrix(a, b), naive_matrix(a, b), rtol=2e-6)


def test_order_of_paths_does_not_matter() -> None:
    a, b = with_gaps(walks(90, 20, 1), 2), with_gaps(walks(110, 15, 3), 4)
    matrix = dtw_matrix(a, b)
    rows, columns = np.random.default_rng(0).permutation(90), np.random.default_rng(1).permutation(110)
    np.testing.assert_array_equal(dtw_matrix(a[rows], b[columns]), matrix[rows][:, columns])
    np.testing.assert_array_equal(dtw_pairs(a, b[:90]), np.diag(matrix))


@pytest.mark.parametrize("cap", [0.25, 1.0])
@pytest.mark.parametrize("step", [0.02, 0.5])
def test_pruning_changes_no_bit(cap: float, step: float) -> None:
    a, b = walks(70, 60, 1, step=step), with_gaps(walks(80, 50, 3, step=step), 4)
    plain = dtw_matrix(a, b)
    assert (plain > cap).any()
    np.testing.assert_array_equal(dtw_matrix(a, b, cap), np.minimum(plain, np.float32(cap)))
    np.testing.assert_array_equal(dtw_pairs(a, b[:70], cap), np.minimum(np.diag(plain), np.float32(cap)))


def test_paths_exactly_the_cap_apart_cost_the_cap() -> None:
    a = np.zeros((65, 33, 3), np.float32)
    a[:, ::2, 1] = 0.5
    b = a + np.float32([1.0, 0.0, 0.0])
    assert (dtw_matrix(a, b, 1.0) == 1.0).all()


def test_threads_change_no_bit() -> None:
    a, b = with_gaps(walks(150, 30, 1), 2), walks(190, 25, 3)
    one = dtw_matrix(a, b, 1.0, threads=1)
    for threads in (2, 3):
        np.testing.assert_array_equal(dtw_matrix(a, b, 1.0, threads=threads), one)
        np.testing.assert_array_equal(
            dtw_pairs(a, b[:150], threads=threads), dtw_pairs(a, b[:150], threads=1)
        )


@pytest.mark.parametrize("apart", [0.0, 0.37])
def test_paths_at_rest_take_the_short_way_to_the_same_value(apart: float) -> None:
    a = np.broadcast_to(np.float32([0.1, 0.2, 0.3]), (1, 40, 3))
    b = np.broadcast_to(np.float32([0.1, 0.2 + apart, 0.3]), (1, 25, 3)).copy()
    assert pack(a).resting.all()
    assert dtw_pairs(a, b)[0] == pytest.approx(naive_dtw(a[0], b[0]), rel=1e-7)
    assert dtw_pairs(b, a)[0] == pytest.approx(naive_dtw(b[0], a[0]), rel=1e-7)


def test_an_empty_path_is_infinitely_far_and_capped() -> None:
    a, b = walks(3, 5, 1), walks(4, 6, 2)
    a[1] = np.nan
    assert np.isinf(dtw_matrix(a, b)[1]).all()
    assert np.isfinite(dtw_matrix(a, b)[[0, 2]]).all()
    assert (dtw_matrix(a, b, 0.5)[1] == 0.5).all()
    assert np.isinf(dtw_pairs(a, b[:3])[1])


def test_no_paths_and_no_frames() -> None:
    some = walks(3, 5, 1)
    assert dtw_matrix(some, some[:0]).shape == (3, 0)
    assert dtw_matrix(some[:0], some).shape == (0, 3)
    assert np.isinf(dtw_matrix(some, some[:, :0])).all()
    assert dtw_pairs(some[:0], some[:0]).shape == (0,)


def test_a_plane_is_a_space_of_three() -> None:
    a, b = walks(5, 9, 1), walks(5, 7, 2)
    a[..., 2] = b[..., 2] = 0.0
    np.testing.assert_array_equal(dtw_pairs(a[..., :2], b[..., :2]), dtw_pairs(a, b))


def test_exploded_coordinates_give_a_number() -> None:
    a, b = walks(2, 5, 1), walks(2, 5, 2).astype(np.float64)
    b[0] *= 1e30
    b[1, 2] = 1e300
    found = dtw_matrix(a, b)
    assert np.isfinite(found).all()
    assert (found[:, 0] > 1e9).all()
    assert (dtw_matrix(a, b, 1.0)[:, 0] == 1.0).all()
    b[1, 2] = np.nan
    np.testing.assert_allclose(found[:, 1], naive_matrix(a, b[1:])[:, 0], rtol=1e-6)


def test_refuses_what_does_not_pair_or_is_no_set_of_paths() -> None:
    with pytest.raises(ValueError, match=r"^3 paths against 2: a paired reading needs one each$"):
        dtw_pairs(walks(3, 4, 0), walks(2, 4, 0))
    with pytest.raises(ValueError, match="paths must have shape"):
        dtw_matrix(np.zeros((4, 3)), np.zeros((4, 3)))
