"""Closed meshes, wound normals outwards: float64 vertices (V,3) in metres, int32 faces (T,3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demo_cases.scene import Array, Faces

_BOX_FACES = np.array(
    [
        [3, 2, 0], [1, 3, 0], [7, 5, 4], [6, 7, 4], [5, 1, 0], [4, 5, 0],
        [7, 6, 2], [3, 7, 2], [6, 4, 0], [2, 6, 0], [7, 3, 1], [5, 7, 1],
    ],
    np.int32,
)  # fmt: skip


def box(half: Sequence[float] | Array) -> tuple[Array, Faces]:
    """A box about the origin with half sides ``half (3,)``; corner i = 4·(+x) + 2·(+y) + (+z)."""
    bits = (np.arange(8)[:, None] >> np.array([2, 1, 0])) & 1
    return (2.0 * bits - 1.0) * np.asarray(half, float), _BOX_FACES.copy()


def octasphere(radius: float, level: int) -> tuple[Array, Faces]:
    """A sphere from an octahedron whose edges are halved ``level`` times: 8·4^level faces."""
    vertices = [
        np.array(p, float) for p in ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
    ]
    faces = [(0, 2, 4), (2, 1, 4), (1, 3, 4), (3, 0, 4), (2, 0, 5), (1, 2, 5), (3, 1, 5), (0, 3, 5)]
    for _ in range(level):
        middles: dict[tuple[int, int], int] = {}

        def middle(a: int, b: int, known: dict[tuple[int, int], int] = middles) -> int:
            key = (min(a, b), max(a, b))
            if key not in known:
                point = vertices[a] + vertices[b]
                vertices.append(point / np.linalg.norm(point))
                known[key] = len(vertices) - 1
            return known[key]

        halved = []
        for a, b, c in faces:
            ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
            halved += [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        faces = halved
    return radius * np.array(vertices), np.array(faces, np.int32)


def slab(size: tuple[float, float], tiles: tuple[int, int], thickness: float) -> tuple[Array, Faces]:
    """A flat block with its top in z = 0, cut into ``tiles``; the first 2·tx·ty faces are the top in rows."""
    tx, ty = tiles
    x, y = np.linspace(-0.5, 0.5, tx + 1) * size[0], np.linspace(-0.5, 0.5, ty + 1) * size[1]
    top = np.stack([*np.meshgrid(x, y, indexing="ij"), np.zeros((tx + 1, ty + 1))], axis=-1).reshape(-1, 3)
    index = np.arange((tx + 1) * (ty + 1)).reshape(tx + 1, ty + 1)
    a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    upper = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)
    rim = np.concatenate([index[:-1, 0], index[-1, :-1], index[:0:-1, -1], index[0, :0:-1]])
    after, count = np.roll(rim, -1), len(top)
    sides = np.stack([rim, rim + count, after + count, rim, after + count, after], axis=-1).reshape(-1, 3)
    faces = np.concatenate([upper, upper[:, ::-1] + count, sides])
    return np.concatenate([top, top - [0.0, 0.0, thickness]]), faces.astype(np.int32)


def checker(tiles: tuple[int, int], faces: int, light: Sequence[float], dark: Sequence[float]) -> Array:
    """Face colours of a slab: a chequered top and plain sides."""
    odd = np.add.outer(np.arange(tiles[0]), np.arange(tiles[1])).ravel() % 2
    colours = np.tile(np.asarray(dark, float), (faces, 1))
    colours[: 2 * len(odd)] = np.where(odd.repeat(2)[:, None] == 1, dark, light)
    return colours


def sheet(nodes: int) -> Faces:
    """Faces of a square grid of ``nodes``² points in row order, with alternating diagonals."""
    index = np.arange(nodes * nodes).reshape(nodes, nodes)
    a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    parity = (np.add.outer(np.arange(nodes - 1), np.arange(nodes - 1)) % 2 == 0)[..., None]
    first = np.where(parity, np.stack([a, b, c], -1), np.stack([a, b, d], -1))
    second = np.where(parity, np.stack([a, c, d], -1), np.stack([b, c, d], -1))
    return np.stack([first, second], axis=2).reshape(-1, 3).astype(np.int32)


def copies(shape: tuple[Array, Faces], centres: Array) -> tuple[Array, Faces]:
    """The shape repeated at every row of ``centres (N,3)``: vertices (N·V,3), faces (N·T,3)."""
    vertices, faces = shape
    offsets = (np.arange(len(centres), dtype=np.int32) * len(vertices))[:, None, None]
    return (centres[:, None] + vertices).reshape(-1, 3), (faces + offsets).reshape(-1, 3).astype(np.int32)
