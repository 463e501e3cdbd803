"""Tracers of a liquid against published values and a plain second implementation."""

from __future__ import annotations

import naive_liquid
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer.liquid import advection
from scorer.liquid.advection import TooMany, advance, columns, finest_spacing, tracers
from scorer.liquid.fields import Fields


def centres(*dims: int) -> np.ndarray:
    return np.stack(np.meshgrid(*map(np.arange, dims), indexing="ij"), axis=-1) + 0.5


def drawn(fields: Fields, spacing: float, most: int = 16384) -> np.ndarray:
    """All frames as one array (F, N, 3)."""
    frames = [points.copy() for points in tracers(fields, spacing, most)]
    out = np.full((len(frames), len(frames[-1]), 3), np.nan)
    for row, found in zip(out, frames, strict=True):
        row[: len(found)] = found
    return out


def arrays(
    dims: tuple[int, int, int], frames: int, seed: int, speed: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A rough velocity, a few drifting blobs of liquid, and uneven times."""
    rng = np.random.default_rng(seed)
    velocity = (speed * rng.normal(size=(frames, *dims, 3))).astype(np.float32)
    at = centres(*dims)
    blobs = rng.random((3, 3)) * dims
    drift = rng.normal(size=(3, 3))
    radii = 1 + rng.random(3) * min(dims) / 3
    moved = blobs + np.arange(frames)[:, None, None] * drift
    distance = np.linalg.norm(at[None, None] - moved[:, :, None, None, None], axis=-1)
    phi = (distance - radii[:, None, None, None]).min(axis=1)
    return velocity, phi.astype(np.float32), np.cumsum(0.1 + rng.random(frames))


def test_published_values() -> None:
    velocity = np.zeros((4, 8, 8, 8, 3), np.float32)
    for frame in range(4):
        velocity[frame] = (0.5, 0, -0.25 * (frame + 1))
    phi = np.linalg.norm(centres(8, 8, 8) - (3, 4, 5), axis=-1) - 2
    fields = Fields.of(velocity, [phi] * 4, np.arange(4.0))
    assert finest_spacing(fields) == (1.0, 40)
    found = drawn(fields, 1.0)
    assert found.shape == (4, 40, 3)
    assert list(np.isfinite(found).all(axis=2).sum(axis=1)) == [32, 32, 32, 40]
    assert np.nansum(found) == pytest.approx(1640.00036, abs=1e-5)
    np.testing.assert_allclose(found[0, 0], (1.55171567, 3.66768076, 4.97091436), atol=5e-9)


@settings(max_examples=25, deadline=None)
@given(
    dims=st.tuples(st.integers(1, 9), st.integers(2, 9), st.integers(2, 9)),
    frames=st.integers(1, 5),
    seed=st.integers(0, 1000),
    speed=st.sampled_from([0.0, 0.5, 4.0]),
    spacing=st.sampled_from([1.0, 1.3, 2.0, 3.7, 20.0]),
)
def test_one_trial_is_the_plain_one(
    dims: tuple[int, int, int], frames: int, seed: int, speed: float, spacing: float
) -> None:
    velocity, phi, times = arrays(dims, frames, seed, speed)
    expected = naive_liquid.trial(velocity, phi, times, spacing, 10_000)
    found = drawn(Fields.of(velocity, phi, times), spacing)
    assert found.shape == expected.shape
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("most", [5, 40, 150, 2000])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_search_is_the_plain_one(seed: int, most: int) -> None:
    velocity, phi, times = arrays((9, 10, 11), 6, seed)
    fields = Fields.of(velocity, phi, times)
    spacing, expected = naive_liquid.search(velocity, phi, times, most)
    assert finest_spacing(fields, most) == (spacing, expected.shape[1])
    np.testing.assert_allclose(drawn(fields, spacing, most), expected, rtol=0, atol=1e-9)
    assert expected.shape[1] <= most


def test_a_budget_that_the_first_spacing_exceeds() -> None:
    velocity, phi, times = arrays((9, 10, 11), 8, 3, speed=30.0)  # all leave, all is seeded again and again
    fields = Fields.of(velocity, phi, times)
    spacing, count = finest_spacing(fields, 30)
    fullest = max(int((one < 0).sum()) for one in phi)
    assert spacing > (2 * fullest / 30) ** (1 / 3)
    assert (spacing, count) == (lambda s, p: (s, p.shape[1]))(*naive_liquid.search(velocity, phi, times, 30))


def test_too_many_columns_end_a_trial() -> None:
    velocity, phi, times = arrays((6, 6, 6), 3, 0)
    fields = Fields.of(velocity, phi, times)
    count = columns(fields, 1.0)
    assert count is not None
    assert columns(fields, 1.0, count) == count
    assert columns(fields, 1.0, count - 1) is None
    with pytest.raises(TooMany):
        list(tracers(fields, 1.0, count - 1))


def test_never_wet() -> None:
    fields = Fields.of(np.zeros((2, 3, 3, 3, 3), np.float32), np.full((2, 3, 3, 3), 3.0), [0, 1])
    with pytest.raises(ValueError, match=r"^no cell centre is ever inside the liquid$"):
        finest_spacing(fields)


def test_a_surface_distance_of_zero_is_dry_and_nan_is_too() -> None:
    phi = np.array([0.0, -0.0, np.nan, -1e-9, 3.0, -3.0], np.float32).reshape(1, 1, 6)
    fields = Fields.of(np.zeros((1, 1, 1, 6, 3), np.float32), [phi], [0])
    assert fields.wet(0).ravel().tolist() == [False, False, False, True, False, True]


def test_neighbours_reach_around_the_border() -> None:
    # One living tracer at the low end covers the cell at the high end of each axis.
    phi = np.ones((2, 4, 4, 4), np.float32)
    phi[0, 0, 0, 0] = phi[1, 3, 3, 3] = phi[1, 2, 2, 2] = -1
    fields = Fields.of(np.zeros((2, 4, 4, 4, 3), np.float32), phi, [0, 1])
    found = drawn(fields, 1.0)
    assert found.shape[1] == 2
    assert np.floor(found[1, 1]).tolist() == [2, 2, 2]


def test_what_leaves_is_gone_for_good_and_its_place_is_seeded_again() -> None:
    velocity = np.zeros((4, 4, 4, 4, 3), np.float32)
    velocity[0, ..., 0] = velocity[1, ..., 0] = 8
    velocity[2:, ..., 0] = -8
    phi = np.ones((4, 4, 4, 4), np.float32)
    phi[:, 1, 1, 1] = -1
    found = drawn(Fields.of(velocity, phi, [0.0, 1.0, 2.0, 3.0]), 1.0)
    alive = np.isfinite(found).all(axis=2)
    assert alive[:, 0].tolist() == [True, False, False, False]
    # The next one is carried ahead and back within an interval, then out at the other side.
    assert alive[:, 1].tolist() == [False, True, True, False]


def test_air_does_not_kill() -> None:
    velocity = np.full((3, 6, 6, 6, 3), (1, 0, 0), np.float32)
    phi = np.ones((3, 6, 6, 6), np.float32)
    phi[0, 1, 1, 1] = -1
    found = drawn(Fields.of(velocity, phi, [0, 1, 2]), 1.0)
    np.testing.assert_allclose(np.diff(found[:, 0], axis=0), [[1, 0, 0]] * 2, atol=1e-12)


def test_the_field_is_interpolated_in_time() -> None:
    velocity = np.zeros((2, 6, 6, 6, 3), np.float32)
    velocity[1, ..., 1] = 2
    points = np.array([[3.0, 1.0, 3.0]])
    advance(points, Fields.of(velocity, np.ones((2, 6, 6, 6)), [0, 1]), 0)
    np.testing.assert_allclose(points, [[3, 2, 3]], atol=1e-12)  # ∫ 2t dt


def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    velocity, phi, times = arrays((12, 12, 12), 4, 5)
    fields = Fields.of(velocity, phi, times)
    expected = drawn(fields, 1.0)
    monkeypatch.setattr(advection, "_BLOCK", 37)
    for threads in (1, 2, 5):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", threads)
        assert np.array_equal(drawn(fields, 1.0), expected, equal_nan=True)


def test_huge_velocities_are_harmless() -> None:
    velocity = np.full((3, 4, 4, 4, 3), 3e38, np.float32)
    phi = np.full((3, 4, 4, 4), -1, np.float32)
    found = drawn(Fields.of(velocity, phi, [0, 3e38, 3.2e38]), 1.0)
    assert np.isfinite(found[2]).all(axis=1).sum() == 64
