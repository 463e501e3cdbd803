"""Interpenetration a second time, the plain way: a loop over objects with trimesh and libigl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import igl
import numpy as np
import trimesh

Mesh = tuple[np.ndarray, np.ndarray]


def naive_frame(meshes: Sequence[Mesh]) -> list[float]:
    """Buried share of each object (vertices (V, 3), faces (T, 3), at least one face)."""
    bodies = [trimesh.Trimesh(np.asarray(v, np.float64), f, process=False) for v, f in meshes]
    probes = [np.asarray(body.vertices)[np.isfinite(body.vertices).all(axis=1)] for body in bodies]
    spans = np.array([np.linalg.norm(body.bounds[1] - body.bounds[0]) for body in bodies])
    owner = np.repeat(np.arange(len(bodies)), [len(points) for points in probes])
    points = np.concatenate([np.zeros((0, 3)), *probes])
    buried = np.zeros(len(points), dtype=bool)
    for b, body in enumerate(bodies):
        with np.errstate(invalid="ignore", divide="ignore"):
            if not np.isfinite(body.volume) or body.volume == 0:
                continue
        others = np.flatnonzero((owner != b) & ~buried)
        tolerances = 0.03 * np.minimum(spans[owner[others]], spans[b])
        buried[others[naive_buried(body, points[others], tolerances)]] = True
    return [float(buried[owner == i].mean()) if len(probes[i]) else 0.0 for i in range(len(bodies))]


def naive_buried(body: trimesh.Trimesh, points: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
    """Indices of points in the body's box and ball, clear of its surface, and wound."""
    low, high = body.bounds
    grow = tolerances[:, None]
    inside = ((points >= low - grow) & (points <= high + grow)).all(axis=1)
    inside &= np.linalg.norm(points - body.bounds.mean(axis=0), axis=1) <= 0.53 * np.linalg.norm(high - low)
    rows = np.flatnonzero(inside)
    if len(rows):
        vertices, faces = np.asarray(body.vertices), np.asarray(body.faces, np.int64)
        square, _, _ = igl.point_mesh_squared_distance(points[rows], vertices, faces)
        rows = rows[np.sqrt(square) > tolerances[rows]]
    if len(rows):
        winding = igl.fast_winding_number(vertices, faces, points[rows])
        rows = rows[np.isfinite(winding) & (np.abs(winding) > 0.5)]
    return rows


def naive_world(world: Any) -> tuple[float | None, list[list[float]]]:
    """The score (None without objects), and the shares of every frame's objects."""
    frames = []
    for frame in range(world.frames):
        meshes = (world.object_mesh(number, frame) for number in world.ids)
        frames.append(naive_frame([mesh for mesh in meshes if len(mesh[1])]))
    judged = [np.mean(shares) for shares in frames if shares]
    return (float(1 - np.mean(judged)) if judged else None), frames
