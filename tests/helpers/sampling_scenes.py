"""Small materials of every kind, moving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scorer.geometry.sampling.materials import MovedMaterial

_CUBE = ("013", "032", "467", "475", "045", "051", "237", "276", "026", "064", "157", "173")
CUBE_FACES = np.array([[int(corner) for corner in face] for face in _CUBE], np.int32)
CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float32)


@dataclass
class Archive:
    name: str
    pos: np.ndarray
    faces: np.ndarray | None = None
    tets: np.ndarray | None = None


def moved(archive: Archive) -> MovedMaterial:
    """The archive with positions as they are."""
    return MovedMaterial(archive, np.eye(4), lambda points: np.asarray(points, np.float64))


def uv_sphere(rings: int, segments: int) -> tuple[np.ndarray, np.ndarray]:
    """Poles first and last."""
    theta = np.pi * np.arange(1, rings) / rings
    phi = 2 * np.pi * np.arange(segments) / segments
    body = np.stack(
        [
            np.outer(np.sin(theta), np.cos(phi)),
            np.outer(np.sin(theta), np.sin(phi)),
            np.repeat(np.cos(theta)[:, None], segments, 1),
        ],
        -1,
    ).reshape(-1, 3)
    verts = np.concatenate([[[0, 0, 1]], body, [[0, 0, -1]]])
    faces = []
    last = len(verts) - 1
    for s in range(segments):
        t = (s + 1) % segments
        faces.append((0, 1 + s, 1 + t))
        for r in range(rings - 2):
            a, b = 1 + r * segments + s, 1 + r * segments + t
            faces += [(a, a + segments, b + segments), (a, b + segments, b)]
        low = 1 + (rings - 2) * segments
        faces.append((last, low + t, low + s))
    return verts.astype(np.float32), np.array(faces, np.int32)


def sheet(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit square of n x n quads in z = 0."""
    x, y = np.meshgrid(np.linspace(0, 1, n + 1), np.linspace(0, 1, n + 1), indexing="ij")
    verts = np.stack([x, y, 0 * x], -1).reshape(-1, 3).astype(np.float32)
    i, j = (g.reshape(-1) for g in np.meshgrid(range(n), range(n), indexing="ij"))
    a = i * (n + 1) + j
    faces = np.concatenate([np.stack([a, a + n + 1, a + n + 2], 1), np.stack([a, a + n + 2, a + 1], 1)])
    return verts, faces.astype(np.int32)


def swept(verts: np.ndarray, frames: int, rng: np.random.Generator, bend: float = 0.0) -> np.ndarray:
    """float32 (F, V, 3): a random rigid motion, plus a bend that is no affine map."""
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    cross = np.cross(np.eye(3), axis)
    step = rng.normal(size=3) * 0.1
    out = []
    for t in range(frames):
        a = 0.2 * t
        turn = np.eye(3) + np.sin(a) * cross + (1 - np.cos(a)) * cross @ cross
        bent = verts + bend * t * np.sin(3 * verts[:, [1, 2, 0]])
        out.append(bent @ turn.T + step * t)
    return np.array(out, np.float32)


def random_material(kind: str, frames: int, rng: np.random.Generator) -> Archive:
    """kind : rigid, bending, sheet, tets, particles, emitter, broken, crumbs, soup."""
    place = rng.normal(size=3) * 0.5
    if kind in ("rigid", "bending"):
        verts, faces = uv_sphere(5, 7)
        pos = swept(verts * 0.4 + place, frames, rng, 0.02 if kind == "bending" else 0.0)
        return Archive(kind, pos, faces)
    if kind == "sheet":
        verts, faces = sheet(3)
        verts = verts + np.stack([0 * verts[:, 0], 0 * verts[:, 0], 0.3 * verts[:, 0] ** 2], 1)
        return Archive(kind, swept(verts + place, frames, rng, 0.02), faces)
    if kind == "tets":
        corner = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) * 0.7
        tets = np.array([[0, 1, 3, 7], [0, 1, 5, 7], [0, 2, 3, 7], [0, 2, 6, 7], [0, 4, 5, 7], [0, 4, 6, 7]])
        return Archive(kind, swept(corner + place, frames, rng, 0.05), tets=tets.astype(np.int32))
    if kind == "particles":
        return Archive(kind, swept(rng.random((60, 3)) + place, frames, rng))
    if kind == "emitter":
        pos = swept(rng.random((60, 3)) + place, frames, rng)
        born, dies = rng.integers(0, frames, 60), rng.integers(1, 2 * frames, 60)
        t = np.arange(frames)[:, None]
        pos[~((t >= born) & (t < born + dies))] = np.nan
        return Archive(kind, pos)
    if kind == "broken":  # one half appears when the other goes, a bridge between them never does
        verts, faces = uv_sphere(4, 5)
        pos = np.concatenate(
            [swept(verts * 0.4 + place, frames, rng), swept(verts * 0.3 - place, frames, rng)], 1
        )
        pos[frames // 2 :, : len(verts)] = np.nan
        pos[: frames // 2, len(verts) :] = np.nan
        bridge = [[0, 1, len(verts)]]
        return Archive(kind, pos, np.concatenate([faces, faces + len(verts), bridge]).astype(np.int32))
    if kind == "crumbs":  # many small components of every class
        verts, faces, start = [], [], 0
        for number in range(12):
            if number % 3 == 0:
                v, f = rng.normal(size=(3, 3)) * 0.2, np.array([[0, 1, 2]])
            elif number % 3 == 1:
                v, f = rng.normal(size=(5, 3)) * 0.2, np.array([[0, 1, 2], [2, 3, 4]])
            else:
                v, f = CUBE * 0.3, CUBE_FACES
            verts.append(v + rng.normal(size=3))
            faces.append(f + start)
            start += len(v)
        order = rng.permutation(start)
        pos = np.empty((start, 3))
        pos[order] = np.concatenate(verts)
        return Archive(kind, swept(pos, frames, rng), order[np.concatenate(faces)].astype(np.int32))
    if kind == "soup":  # neither closed nor consistent
        verts = rng.normal(size=(12, 3)) * 0.4 + place
        return Archive(kind, swept(verts, frames, rng, 0.02), rng.integers(0, 12, (14, 3)).astype(np.int32))
    raise ValueError(kind)
