"""Following sightings that are made up, without any picture."""

import numpy as np
import pytest

from harness.baseline.outlines import Sighting
from harness.baseline.stars import ANGLES
from harness.baseline.tracks import MOST_SIGHTINGS, MOST_TRACKS, PATIENCE, Tracker

RED, BLUE = (200.0, 40.0, 40.0), (40.0, 40.0, 200.0)


def at(
    column: float, row: float, radius: float = 8.0, colour: tuple[float, ...] = RED, shade: float = 0.0
) -> Sighting:
    radii = np.full(ANGLES, radius, dtype=np.float32)
    return Sighting(np.pi * radius**2, (column, row), radii, (colour[0], colour[1], colour[2]))


def follow(frames: list[list[Sighting]]) -> Tracker:
    tracker = Tracker((200, 300))
    for frame, seen in enumerate(frames):
        tracker.update(frame, seen)
    return tracker


def test_nothing_seen_gives_no_track() -> None:
    assert follow([[], [], []]).tracks(3) == []


def test_two_things_that_cross_keep_their_names() -> None:
    frames = [[at(20 + 5 * t, 60), at(170 - 5 * t, 64, colour=BLUE)] for t in range(30)]
    # What is listed first must not matter.
    tracks = follow([seen[:: 1 if t % 2 else -1] for t, seen in enumerate(frames)]).tracks(30)
    assert [len(track.sightings) for track in tracks] == [30, 30]
    for track in tracks:
        assert len({sighting.colour for sighting in track.sightings}) == 1


@pytest.mark.parametrize("gap", [1, PATIENCE])
def test_a_short_gap_is_filled_in(gap: int) -> None:
    unseen = range(10, 10 + gap)
    tracks = follow([[] if t in unseen else [at(20 + 3 * t, 60, radius=8 + t)] for t in range(30)]).tracks(30)
    assert len(tracks) == 1
    assert len(tracks[0].sightings) == 30
    for t, sighting in enumerate(tracks[0].sightings):
        assert sighting.centre[0] == pytest.approx(20 + 3 * t)
        assert sighting.radii[0] == pytest.approx(8 + t, rel=1e-5)


def test_a_long_gap_ends_a_track() -> None:
    seen = [[] if 10 <= t < 10 + PATIENCE + 1 else [at(50, 60)] for t in range(30)]
    assert [track.first for track in follow(seen).tracks(30)] == [0, 10 + PATIENCE + 1]


def test_merging_ends_one_track_and_parting_begins_one() -> None:
    frames = [[at(100 - 20 + t, 60), at(100 + 20 - t, 60, colour=BLUE)] for t in range(12)]
    frames += [[at(100, 60, radius=11)] for _ in range(12)]
    frames += [[at(100 - 12 - t, 60), at(100 + 12 + t, 60, colour=BLUE)] for t in range(12)]
    tracks = follow(frames).tracks(36)
    assert len(tracks) == 3
    covered = np.zeros(36, dtype=int)
    for track in tracks:
        covered[track.first : track.last + 1] += 1
    assert covered[:12].tolist() == [2] * 12
    assert covered.min() >= 1


def test_flashes_are_dropped_but_not_in_very_short_videos() -> None:
    assert follow([[at(50, 60)] if t == 3 else [] for t in range(40)]).tracks(40) == []
    assert len(follow([[at(50, 60)]]).tracks(1)) == 1
    assert len(follow([[], [at(50, 60)]]).tracks(2)) == 1


def test_seeds_go_on_at_the_last_speed() -> None:
    tracker = follow([[at(20 + 3 * t, 60 - t)] for t in range(5)])
    (seed,) = tracker.seeds(6)
    assert seed.centre == pytest.approx((38, 54))
    np.testing.assert_array_equal(seed.radii, np.full(ANGLES, 8.0))


def test_a_world_is_kept_within_limits() -> None:
    crowd = [
        [at(10 + 20 * (k % 14), 10 + 30 * (k // 14), radius=2 + k / 10) for k in range(70)] for _ in range(20)
    ]
    tracks = follow(crowd).tracks(20)
    assert len(tracks) == MOST_TRACKS
    assert min(track.sightings[0].size for track in tracks) > 4
    assert sum(len(track.sightings) for track in tracks) <= MOST_SIGHTINGS
