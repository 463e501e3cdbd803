"""Small scenes for tests that draw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

K_S = np.array([[60.0, 0.0, 32.0], [0.0, 60.0, 24.0], [0.0, 0.0, 1.0]])
IDENTITY = np.eye(4)
FRAMES_S, HEIGHT_S, WIDTH_S = 4, 48, 64


def grid(nx: int, ny: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (x, y) of a square ±1 with nx × ny cells, x-major, and two triangles a cell."""
    x, y = np.meshgrid(np.linspace(-1, 1, nx + 1), np.linspace(-1, 1, ny + 1), indexing="ij")
    verts = np.stack([x.ravel(), y.ravel()], axis=1)
    faces = []
    for i in range(nx):
        for j in range(ny):
            a = i * (ny + 1) + j
            b = a + ny + 1
            faces += [(a, b, b + 1), (a, b + 1, a + 1)]
    return verts, np.array(faces, np.int32)


def cube() -> tuple[np.ndarray, np.ndarray]:
    """Unit cube, corners in (x, y, z) lexicographic order."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([t for a, b, c, d in sides for t in ((a, b, c), (a, c, d))], np.int32)


def sphere(rings: int, sectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit sphere with poles on z, float64; ``2·rings·sectors`` triangles (those at the poles flat)."""
    theta = np.linspace(0, np.pi, rings + 1)[:, None]
    phi = np.linspace(0, 2 * np.pi, sectors, endpoint=False)[None]
    verts = np.stack(
        [np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta) + 0 * phi], axis=-1
    ).reshape(-1, 3)
    a = np.arange(rings)[:, None] * sectors + np.arange(sectors)[None]
    b = np.arange(rings)[:, None] * sectors + (np.arange(sectors)[None] + 1) % sectors
    first = np.stack([a, b, a + sectors], axis=-1).reshape(-1, 3)
    second = np.stack([b, b + sectors, a + sectors], axis=-1).reshape(-1, 3)
    return verts, np.concatenate([first, second]).astype(np.int32)


def scene_s(frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices, faces, owners of golden scene S at a frame: a wall, a moving cube, a patch that changes."""
    flat, cells = grid(1, 1)
    parts = [(np.column_stack([9 * flat, np.full(len(flat), 6.0)]), cells)]
    corners, sides = cube()
    parts.append((corners + np.array([-1.5 + 0.1 * frame, 0, 4]), sides))
    flat, cells = grid(5 + frame, 5 + frame)
    parts.append((np.column_stack([0.8 * flat + [1.3, 0.05 * frame], np.full(len(flat), 5.0)]), cells))
    starts = np.cumsum([0, *(len(v) for v, _ in parts)])
    verts = np.concatenate([v for v, _ in parts]).astype(np.float32)
    faces = np.concatenate([f + np.int32(s) for (_, f), s in zip(parts, starts, strict=False)])
    owner = np.repeat(np.array([1, 2, 3], np.int32), [len(f) for _, f in parts])
    return verts, faces.astype(np.int32), owner


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else -q


def random_camera(rng: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Intrinsics with skew terms, and a turned and shifted camera-to-world matrix."""
    focal = width * rng.uniform(0.4, 1.5)
    k = np.array([[focal, rng.normal(0, 2), width * rng.uniform(0.3, 0.7)],
                  [rng.normal(0, 2), focal * 1.1, height * rng.uniform(0.3, 0.7)],
                  [0, 0, 1]])  # fmt: skip
    e = np.eye(4)
    e[:3, :3] = random_rotation(rng)
    e[:3, 3] = rng.normal(size=3)
    return k, e


@dataclass
class FakeWorld:
    """What a metric reads of a world, from arrays in memory."""

    soups: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    dynamic_ids: tuple[int, ...]
    height: int = HEIGHT_S
    width: int = WIDTH_S
    intrinsics: np.ndarray = field(default_factory=lambda: K_S)
    extrinsic: np.ndarray = field(default_factory=lambda: IDENTITY)
    materials: tuple[Any, ...] = ()
    liquid_ids: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return id(self)

    @property
    def frames(self) -> int:
        return len(self.soups)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.frames, self.height, self.width

    def soup(self, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.soups[frame]
