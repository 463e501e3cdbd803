"""Interpenetration of the submission: how much of the objects is buried in other objects.

A vertex is buried when it lies deeper in another object that has volume than 3 % of the smaller of the two
objects' diagonals. An object's value is the share of its vertices that are, a frame's the mean of its
objects', the score one minus the mean of the frames with objects.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scorer.geometry.solid import Connectivity, Solid
from scorer.metrics.base import Measurement
from scorer.metrics.interpenetration_pairs import near_pairs, reachable
from scorer.metrics.mesh import Geometry, worker_count
from scorer.scene import Scene


def measure(scene: Scene) -> Measurement:
    """Judge every object at every frame of the submission."""
    return measure_world(scene.submission)


def measure_world(world: Geometry) -> Measurement:
    """The same for a world that is at hand already."""
    shares = list(_frames(world))
    counts = np.array([len(values) for values in shares], dtype=np.int32)
    judged = [float(np.mean(values)) for values in shares if len(values)]
    detail: dict[str, Any] = {
        "interpenetration_components": int(counts.sum()),
        "interpenetration_frames": len(shares),
        "interpenetration_judged_frames": len(judged),
    }
    if judged:
        detail["interpenetration"] = float(1.0 - np.mean(judged))
    buried = np.concatenate([np.zeros(0), *shares]).astype(np.float32)
    arrays = {"buried": buried, "components_per_frame": counts}
    return Measurement(detail=detail, arrays={"interpenetration": arrays})


@dataclass(eq=False)
class Body:
    """An object for as long as it stays as it is.

    stays : whether it has been the same at two frames. known : for others that stay, by their number, the
    body and which of its vertices (int64) are buried in this one. Threads that miss an entry at the same time
    find the same.
    """

    number: int
    solid: Solid
    stays: bool = False
    known: dict[int, tuple[Body, np.ndarray]] = field(default_factory=dict)


def buried_shares(bodies: Sequence[Body]) -> np.ndarray:
    """Share of each object's finite vertices that are buried in others; float64 (n,), 0 without vertices.

    bodies : the objects of one frame.
    """
    if len(bodies) < 2:
        return np.zeros(len(bodies))
    start = np.cumsum([0, *(len(body.solid.vertices) for body in bodies)])
    vertices = np.concatenate([body.solid.vertices for body in bodies])
    extents = np.array([body.solid.extents for body in bodies])
    spans = np.array([body.solid.span for body in bodies])
    buried = np.zeros(len(vertices), dtype=bool)
    for k, others in _by_body(near_pairs(extents, spans)):
        body = bodies[k]
        if not body.solid.has_volume:
            continue
        others = [i for i in others if not _recall(body, bodies[i], buried[start[i] : start[i + 1]])]
        rows, points, tolerances = reachable(
            vertices, start, np.array(others, dtype=np.int64), extents, spans, k
        )
        rows = rows[body.solid.buries(points, tolerances)] if len(rows) else rows
        buried[rows] = True
        for i in others:
            if body.stays and bodies[i].stays:
                first, last = np.searchsorted(rows, start[i : i + 2])
                body.known[bodies[i].number] = bodies[i], rows[first:last] - start[i]
    return np.array(
        [
            int(buried[start[i] : start[i + 1]].sum()) / max(body.solid.finite_count, 1)
            for i, body in enumerate(bodies)
        ]
    )


def _by_body(pairs: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """The others of each first member of sorted pairs."""
    cuts = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1, append=-1))
    for first, last in itertools.pairwise(cuts):
        yield int(pairs[first, 0]), pairs[first:last, 1].tolist()


def _recall(body: Body, other: Body, marks: np.ndarray) -> bool:
    """Mark what is known of ``other`` in ``body``; False when nothing is."""
    known = body.known.get(other.number)
    if known is None or known[0] is not other:
        return False
    marks[known[1]] = True
    return True


def _frames(world: Geometry) -> Iterator[np.ndarray]:
    """Buried shares of every frame in turn.

    The world is read by this thread alone; compiled code, which lets go of the interpreter's lock, judges in
    the others. Results do not depend on who is first. A few frames are in flight at a time, so memory stays
    bounded.
    """
    workers = worker_count()
    reader = _Reader(world)
    running: deque[Future[np.ndarray]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for frame in range(world.frames):
                running.append(pool.submit(buried_shares, reader.bodies(frame)))
                if len(running) > 2 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Reader:
    """Hands out the objects of each frame; one that is as at the frame before is the same ``Body``."""

    def __init__(self, world: Geometry) -> None:
        self._world = world
        self._last: dict[int, Body] = {}

    def bodies(self, frame: int) -> list[Body]:
        """Objects with faces at ``frame``, ascending id."""
        found: list[Body] = []
        for number in self._world.ids:
            vertices, faces = self._world.object_mesh(number, frame)
            if len(faces):
                found.append(self._body(number, vertices, faces))
        return found

    def _body(self, number: int, vertices: np.ndarray, faces: np.ndarray) -> Body:
        last = self._last.get(number)
        if last is not None and np.array_equal(last.solid.faces, faces):
            if np.array_equal(last.solid.vertices, vertices):
                last.stays = True
                return last
            connectivity = last.solid.connectivity
        else:
            connectivity = Connectivity(faces)
        body = self._last[number] = Body(number, Solid(vertices, connectivity))
        return body
