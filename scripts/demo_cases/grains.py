"""`demo_grains`: grains are poured from a spout over a dome into a tray. Soft spheres with friction (DEM)."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from demo_cases.rigid import floor
from demo_cases.scene import (
    CONTACT_MARGIN,
    FPS,
    FRAMES,
    GRAVITY,
    Array,
    Body,
    Material,
    Scene,
    look_at,
    still,
)
from demo_cases.shapes import box, copies, octasphere

RADIUS = 0.042
"""Of a grain, metres."""
SPOUT = np.array([-0.10, 0.05, 1.55])
FALL_SPEED = 3.0
"""Metres per second downwards at birth: one and a half diameters of a grain a frame."""
LAYERS, EARLY = 46, 6
"""Layers of grains leave the spout one a frame; the first EARLY are under way when the take begins."""
PLACES = 7
"""Grains of a layer, out of the nine of a 3×3 grid."""
DOME, DOME_RADIUS = np.array([0.12, 0.0, 0.0]), 0.36
TRAY, WALL, WALL_HEIGHT = 0.95, 0.05, 0.16
"""Half of the tray's inner side, half of a wall's thickness, its height; metres."""
SUBSTEPS = 60
STIFFNESS, DAMPING, FRICTION = 60000.0, 150.0, 0.45
"""Newton per metre of overlap, newton seconds per metre, –, for grains of one kilogram."""


def walls() -> list[tuple[Array, Array]]:
    """Centre and half sides of the four walls of the tray."""
    middle, z = TRAY + WALL, WALL_HEIGHT / 2 + CONTACT_MARGIN
    long = np.array([TRAY + 2 * WALL, WALL, WALL_HEIGHT / 2])
    short = np.array([WALL, TRAY, WALL_HEIGHT / 2])
    return [
        (np.array([0.0, -middle, z]), long),
        (np.array([0.0, middle, z]), long),
        (np.array([-middle, 0.0, z]), short),
        (np.array([middle, 0.0, z]), short),
    ]


def births(seed: int) -> tuple[Array, Array]:
    """Frame (N,) and place (N,3) at which each grain comes into being, in order of birth; no two touch."""
    rng = np.random.default_rng(seed)
    grid = (np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 2)) * 2.15 * RADIUS
    frames, places = [], []
    for layer in range(LAYERS):
        angle = rng.uniform(0.0, np.pi / 2)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        chosen = rng.permutation(9)[:PLACES]
        height = max(0, EARLY - 1 - layer) * FALL_SPEED / FPS
        flat = grid[chosen] @ turn.T + SPOUT[:2]
        # A layer is ahead of the next by more than a grain, even with both ends of this jitter.
        heights = SPOUT[2] - height + rng.uniform(-0.02, 0.02, PLACES)
        places.append(np.column_stack([flat, heights]))
        frames.append(np.full(PLACES, max(0, layer - EARLY + 1)))
    return np.concatenate(frames), np.concatenate(places)


def pour(seed: int = 7, frames: int = FRAMES, fps: int = FPS) -> Array:
    """Grain history (F,N,3), columns in order of birth, NaN before birth."""
    birth, start = births(seed)
    speed = np.tile([0.2, 0.0, -FALL_SPEED], (len(start), 1))
    x = start.copy()
    history = np.full((frames, len(x), 3), np.nan)
    step = 1.0 / (fps * SUBSTEPS)
    ticks = np.arange(frames * SUBSTEPS + 1) / SUBSTEPS
    for tick, frame in enumerate(ticks[: (frames - 1) * SUBSTEPS + 1]):
        alive = int(np.searchsorted(birth, frame, side="right"))
        if tick % SUBSTEPS == 0:
            history[tick // SUBSTEPS, :alive] = x[:alive]
        force = _forces(x[:alive], speed[:alive])
        force[:, 2] += GRAVITY
        speed[:alive] += step * force
        x[:alive] += step * speed[:alive]
    return history


def _forces(x: Array, v: Array) -> Array:
    """Contact forces per kilogram, (n,3)."""
    total = np.zeros_like(x)
    pairs = cKDTree(x).query_pairs(2 * RADIUS, output_type="ndarray")
    if len(pairs):
        a, b = pairs[np.lexsort(pairs.T[::-1])].T
        apart = x[a] - x[b]
        distance = np.linalg.norm(apart, axis=1)
        push = _contact(apart / distance[:, None], 2 * RADIUS - distance, v[a] - v[b], 0.5)
        for axis in range(3):
            total[:, axis] += np.bincount(a, push[:, axis], len(x)) - np.bincount(b, push[:, axis], len(x))
    up = np.broadcast_to([0.0, 0.0, 1.0], x.shape)
    total += _contact(up, RADIUS + CONTACT_MARGIN - x[:, 2], v, 1.0)
    away = x - DOME
    distance = np.linalg.norm(away, axis=1)
    total += _contact(away / distance[:, None], DOME_RADIUS + RADIUS - distance, v, 1.0)
    for centre, half in walls():
        offset = x - centre
        away = offset - np.clip(offset, -half, half)
        distance = np.maximum(np.linalg.norm(away, axis=1), 1e-9)
        total += _contact(away / distance[:, None], RADIUS - distance, v, 1.0)
    return total


def _contact(normal: Array, depth: Array, v: Array, mass: float) -> Array:
    """Spring and damper along the normal, Coulomb friction across it; zero where nothing touches."""
    approach = (v * normal).sum(axis=1)
    press = np.where(depth > 0.0, np.maximum(STIFFNESS * depth - DAMPING * approach, 0.0), 0.0)
    sliding = v - approach[:, None] * normal
    speed = np.linalg.norm(sliding, axis=1)
    # Near rest friction grows with speed, so that grains settle instead of shaking.
    rub = np.minimum(FRICTION * press, 60.0 * mass * speed) / np.maximum(speed, 1e-9)
    return np.asarray(press[:, None] * normal - rub[:, None] * sliding)


def build() -> Scene:
    """Simulate the case."""
    history = pour()
    grain = octasphere(RADIUS, 1)
    alive = np.isfinite(history[:, :, 0]).sum(axis=1)
    meshes = [copies(grain, row[:n]) for row, n in zip(history, alive, strict=True)]
    rng = np.random.default_rng(11)
    tint = np.array([0.80, 0.52, 0.16]) * rng.uniform(0.55, 1.1, (len(history[0]), 1))
    colours = np.clip(np.repeat(tint, len(grain[1]), axis=0), 0.0, 1.0)
    grains = Body(2, [m[0] for m in meshes], [m[1] for m in meshes], colours, smooth=True, gloss=0.08)
    dome_vertices, dome_faces = octasphere(DOME_RADIUS, 4)
    dome = still(
        3, (dome_vertices + DOME, dome_faces), np.tile((0.14, 0.34, 0.36), (len(dome_faces), 1)), smooth=True
    )
    bodies: list[Body] = [floor((0.56, 0.52, 0.46), (0.45, 0.42, 0.38)), grains, dome]
    for id, (centre, half) in enumerate(walls(), start=4):
        vertices, faces = box(half)
        bodies.append(still(id, (vertices + centre, faces), np.tile((0.42, 0.20, 0.10), (len(faces), 1))))
    material = Material("grains", history, (2,))
    return Scene("demo_grains", look_at((0.3, -3.7, 1.95), (0.0, 0.0, 0.42), 1.1), tuple(bodies), (material,))
