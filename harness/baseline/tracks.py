"""Following pieces from frame to frame.

Each track is expected where its last two sightings point to; pairs of tracks and sightings are taken
cheapest first. Where things meet, the merged piece goes on as one of them and the others end; where they
part, a new track begins.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from harness.baseline.outlines import Sighting
from harness.baseline.parting import Seed

PATIENCE = 4
"""Frames that a track may go unseen; the gap is filled in between."""
REACH_SIZES, REACH_SHARE = 2.0, 0.06
"""Farthest jump of a track: multiples of both sizes together, or a share of the picture's diagonal."""
LEAST_FRAMES = 3
"""Shortest lifetime that counts (less in very short videos)."""
MOST_TRACKS = 48
MOST_SIGHTINGS = 30_000
"""Limits of a world: tracks, and frames of all tracks together. The largest are kept."""


@dataclass
class Track:
    """One thing: its sightings in the frames ``first``, ``first`` + 1, …"""

    first: int
    sightings: list[Sighting] = field(default_factory=list)

    @property
    def last(self) -> int:
        """Frame of the last sighting."""
        return self.first + len(self.sightings) - 1

    @property
    def bulk(self) -> float:
        """Area summed over the lifetime, cells."""
        return float(sum(sighting.area for sighting in self.sightings))

    def expected(self, frame: int) -> tuple[float, float]:
        """Where the centre should be at ``frame``, going on at the last speed."""
        column, row = self.sightings[-1].centre
        if len(self.sightings) < 2:
            return column, row
        before = self.sightings[-2].centre
        ahead = frame - self.last
        return column + ahead * (column - before[0]), row + ahead * (row - before[1])

    def add(self, frame: int, sighting: Sighting) -> None:
        """Append a sighting; frames that were missed are filled in linearly."""
        before, gap = self.sightings[-1], frame - self.last
        for step in range(1, gap):
            self.sightings.append(_between(before, sighting, step / gap))
        self.sightings.append(sighting)


class Tracker:
    """Feed it each frame's sightings in order, then ask for the tracks."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._reach = REACH_SHARE * float(np.hypot(*shape))
        self._running: list[Track] = []
        self._ended: list[Track] = []

    def update(self, frame: int, sightings: list[Sighting]) -> None:
        """Take in what was seen at ``frame``."""
        oldest = frame - PATIENCE - 1
        self._ended += [track for track in self._running if track.last < oldest]
        self._running = [track for track in self._running if track.last >= oldest]
        free = set(range(len(sightings)))
        for track, index in self._pairs(frame, sightings):
            self._running[track].add(frame, sightings[index])
            free.discard(index)
        self._running += [Track(frame, [sightings[index]]) for index in sorted(free)]

    def seeds(self, frame: int) -> list[Seed]:
        """Where the running tracks are expected at ``frame``."""
        return [Seed(track.expected(frame), track.sightings[-1].radii) for track in self._running]

    def tracks(self, frames: int) -> list[Track]:
        """Tracks worth showing in a video of ``frames`` frames, in order of appearance (then of size)."""
        least = min(LEAST_FRAMES, max(1, frames // 4))
        lasting = [track for track in self._ended + self._running if len(track.sightings) >= least]
        chosen: list[Track] = []
        budget = MOST_SIGHTINGS
        for track in sorted(lasting, key=lambda track: -track.bulk)[:MOST_TRACKS]:
            if len(track.sightings) <= budget:
                chosen.append(track)
                budget -= len(track.sightings)
        return sorted(chosen, key=lambda track: (track.first, -track.bulk))

    def _pairs(self, frame: int, sightings: list[Sighting]) -> list[tuple[int, int]]:
        """Pairs (running track, sighting), each used once, cheapest first."""
        if not self._running or not sightings:
            return []
        cost = self._costs(frame, sightings)
        order = np.argsort(cost, axis=None, kind="stable")
        order = order[np.isfinite(cost.ravel()[order])]
        pairs: list[tuple[int, int]] = []
        taken_tracks: set[int] = set()
        taken_sightings: set[int] = set()
        for flat in order.tolist():
            track, index = divmod(flat, len(sightings))
            if track not in taken_tracks and index not in taken_sightings:
                pairs.append((track, index))
                taken_tracks.add(track)
                taken_sightings.add(index)
        return pairs

    def _costs(self, frame: int, sightings: list[Sighting]) -> npt.NDArray[np.float64]:
        """Cost of each pair, (tracks, sightings); infinite where out of reach."""
        last = [track.sightings[-1] for track in self._running]
        here = np.array([track.expected(frame) for track in self._running])
        stayed = np.array([sighting.centre for sighting in last])
        there = np.array([sighting.centre for sighting in sightings])
        # Something that hits the ground does not go on: it may also be near where it was.
        distance = np.minimum(_distances(here, there), _distances(stayed, there) + 1.0)
        sizes = _sizes(last)[:, None] + _sizes(sightings)[None, :]
        growth = np.abs(np.log(_sizes(last)[:, None] / _sizes(sightings)[None, :]))
        tints = np.array([sighting.colour for sighting in last])
        colours = np.array([sighting.colour for sighting in sightings])
        cost = distance / sizes + growth + _distances(tints, colours) / 100.0
        return np.where(distance <= np.maximum(REACH_SIZES * sizes, self._reach), cost, np.inf)


def _sizes(sightings: list[Sighting]) -> npt.NDArray[np.float64]:
    return np.array([sighting.size for sighting in sightings])


def _distances(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = np.linalg.norm(left[:, None, :] - right[None, :, :], axis=2)
    return result


def _between(before: Sighting, after: Sighting, share: float) -> Sighting:
    """A sighting ``share`` of the way from one to another."""

    def mix(a: float, b: float) -> float:
        return a + share * (b - a)

    return replace(
        before,
        area=mix(before.area, after.area),
        centre=(mix(before.centre[0], after.centre[0]), mix(before.centre[1], after.centre[1])),
        radii=(before.radii + np.float32(share) * (after.radii - before.radii)).astype(np.float32),
    )
