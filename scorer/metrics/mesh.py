"""Mesh quality of the submission: watertight, manifold, clean faces, no self-intersection.

One row for each object and frame with at least one face. A row passes a check when every edge-connected
component of the object does; a metric is the share of rows that pass.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from contract.constants import SEED
from scorer.geometry.self_intersection import any_component_intersects
from scorer.metrics.base import Measurement
from scorer.metrics.mesh_faces import clean_faces
from scorer.metrics.mesh_layout import Layout, layout, without_flat_fillings
from scorer.metrics.mesh_shells import ProbeFaces, watertight
from scorer.scene import Scene

CHECKS = ("watertight", "manifold", "clean_faces", "no_self_intersection")
FRAME_SEED_STEP = 8191
"""The generator of frame f is seeded SEED + 8191·f."""

Verdict = tuple[bool, bool, bool, bool]
"""One bool for each of ``CHECKS``."""


class Geometry(Protocol):
    """The part of ``world.reader.World`` that is needed here."""

    @property
    def frames(self) -> int: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    def lifetime(self, number: int) -> range: ...
    def object_mesh(self, number: int, frame: int) -> tuple[np.ndarray, np.ndarray]: ...


def measure(scene: Scene) -> Measurement:
    """Judge every object at every frame of the submission."""
    return measure_world(scene.submission)


def measure_world(world: Geometry) -> Measurement:
    """The same for a world that is at hand already."""
    rows = list(_rows(world))
    checks = np.array([verdict for verdicts in rows for verdict in verdicts], dtype=bool).reshape(-1, 4)
    frame = np.repeat(np.arange(len(rows), dtype=np.int32), [len(verdicts) for verdicts in rows])
    detail: dict[str, Any] = {
        "mesh_components": len(checks),
        "mesh_frames": list(range(len(rows))),
        "mesh_per_frame": [
            {"frame": f, "components": len(verdicts), "clean": sum(map(all, verdicts))}
            for f, verdicts in enumerate(rows)
        ],
        "mesh_failures": {name: int((~checks[:, k]).sum()) for k, name in enumerate(CHECKS)},
    }
    if len(checks):
        detail |= {f"mesh_{name}": float(checks[:, k].mean()) for k, name in enumerate(CHECKS)}
        detail["mesh_score"] = float(checks.all(axis=1).mean())
    arrays = {"frame": frame, "checks": checks, "check_names": np.array(CHECKS)}
    return Measurement(detail=detail, arrays={"mesh": arrays})


def judge(plan: Layout, vertices: np.ndarray, probe_faces: ProbeFaces) -> Verdict:
    """The four checks of one object at one frame.

    plan : layout of its faces. vertices : float32 (V, 3). probe_faces : the frame's generator, or the
        object's own.
    """
    plan = without_flat_fillings(plan, vertices)
    return (
        watertight(plan, vertices, probe_faces),
        not plan.over.any(),
        bool(clean_faces(vertices, plan.faces, plan.start, plan.vertices, plan.vertex_start)),
        not any_component_intersects(vertices, plan.faces, plan.start),
    )


@dataclass(frozen=True)
class _Part:
    """An object at a frame, on its way to judgement."""

    plan: Future[Layout]
    vertices: np.ndarray


def _rows(world: Geometry) -> Iterator[list[Verdict]]:
    """Verdicts of every frame in turn, objects in ascending id.

    The world is read by this thread alone; compiled code, which lets go of the interpreter's lock, judges in
    the others. Results do not depend on who is first. A few frames are in flight at a time, so memory stays
    bounded.
    """
    workers = worker_count()
    with ThreadPoolExecutor(workers) as pool:
        reader = _Reader(world, pool)
        running: deque[Future[list[Verdict]]] = deque()
        try:
            for frame in range(world.frames):
                running.append(pool.submit(_judge_frame, frame, reader.parts(frame)))
                if len(running) > 2 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _judge_frame(frame: int, parts: list[_Part | Future[Verdict]]) -> list[Verdict]:
    probe_faces = ProbeFaces(SEED + FRAME_SEED_STEP * frame)
    return [
        judge(part.plan.result(), part.vertices, probe_faces) if isinstance(part, _Part) else part.result()
        for part in parts
    ]


class _Reader:
    """Hands out the objects of each frame; layouts are shared while faces stay, verdicts by constant objects.

    Layouts and shared verdicts are jobs submitted before the frames that wait for them and wait for nothing
    themselves, so a pool that starts jobs in order cannot block.
    """

    def __init__(self, world: Geometry, pool: ThreadPoolExecutor) -> None:
        self._world = world
        self._pool = pool
        self._verdicts = {number: self._constant(number) for number in world.ids}
        self._faces: dict[int, np.ndarray] = {}
        self._plans: dict[int, Future[Layout]] = {}

    def parts(self, frame: int) -> list[_Part | Future[Verdict]]:
        """Objects with faces at ``frame``, ascending id: geometry, or a constant object's verdict."""
        found: list[_Part | Future[Verdict]] = []
        for number, verdict in self._verdicts.items():
            if frame not in self._world.lifetime(number):
                continue
            if verdict is not None:
                found.append(verdict)
                continue
            vertices, faces = self._world.object_mesh(number, frame)
            if len(faces):
                found.append(_Part(self._plan(number, faces, len(vertices)), vertices))
        return found

    def _constant(self, number: int) -> Future[Verdict] | None:
        """The one verdict of an object that never changes, judged with a generator of its own."""
        lifetime = self._world.lifetime(number)
        vertices, faces = self._world.object_mesh(number, lifetime[0])
        if not len(faces):
            return None
        for frame in lifetime[1:]:
            other_vertices, other_faces = self._world.object_mesh(number, frame)
            if not (np.array_equal(vertices, other_vertices) and np.array_equal(faces, other_faces)):
                return None
        return self._pool.submit(_judge_constant, vertices, faces)

    def _plan(self, number: int, faces: np.ndarray, vertex_count: int) -> Future[Layout]:
        last = self._faces.get(number)
        if last is None or not np.array_equal(last, faces):
            self._faces[number] = faces
            self._plans[number] = self._pool.submit(layout, faces, vertex_count)
        return self._plans[number]


def _judge_constant(vertices: np.ndarray, faces: np.ndarray) -> Verdict:
    return judge(layout(faces, len(vertices)), vertices, ProbeFaces(SEED))


def worker_count() -> int:
    """Threads for frames: ``OMP_NUM_THREADS`` when it is a positive number, else the processors this process
    may use.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0))
