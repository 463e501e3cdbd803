"""`demo_cloth`: a cloth falls over a ball. Distance constraints, solved by XPBD (Macklin et al. 2016)."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from demo_cases.rigid import floor
from demo_cases.scene import FPS, FRAMES, GRAVITY, Array, Faces, Material, Scene, look_at, moving, still
from demo_cases.shapes import octasphere, sheet

NODES = 37
SIDE = 1.7
"""Metres."""
START = (0.10, 0.03, 1.30)
BALL, RADIUS = np.array([0.0, 0.0, 0.45]), 0.45
SUBSTEPS = 28
THICKNESS = 0.018
"""Nodes keep this distance from ball and floor, so that the faces between them stay clear too."""
SPACING = 0.044
"""Nodes that are no neighbours keep this distance from each other."""
STRETCH, BEND = 1e-8, 5e-5
"""Compliances: stretch and shear, bending; metres per newton for nodes of one kilogram."""
FRICTION, DRAG = 0.3, 0.6


def springs(nodes: int) -> list[tuple[Faces, float]]:
    """Batches of (pairs (S,2), compliance) in which no node occurs twice: each is solved at once."""
    index = np.arange(nodes * nodes).reshape(nodes, nodes)
    batches: list[tuple[Faces, float]] = []
    for di, dj, compliance in (
        (1, 0, STRETCH),
        (0, 1, STRETCH),
        (1, 1, STRETCH),
        (1, -1, STRETCH),
        (2, 0, BEND),
        (0, 2, BEND),
    ):
        first = index[: nodes - di, max(0, -dj) : nodes - max(0, dj)]
        second = index[di:, max(0, dj) : nodes + min(0, dj)]
        pairs = np.stack([first.ravel(), second.ravel()], axis=1)
        # Along the direction of a spring, every second one (or pair) of them may go together.
        steps = (pairs[:, 0] // nodes) if di else (pairs[:, 0] % nodes)
        colour = (steps // max(di, abs(dj))) % 2
        batches += [(pairs[colour == c].astype(np.int32), compliance) for c in (0, 1)]
    return batches


def fall(frames: int = FRAMES, fps: int = FPS) -> Array:
    """Node history (F, NODES², 3) of the sheet, let go flat and a little aslant."""
    ticks = np.linspace(-0.5, 0.5, NODES) * SIDE
    u, v = (axis.ravel() for axis in np.meshgrid(ticks, ticks, indexing="ij"))
    turn, slope = 0.35, 0.10
    x = (
        np.stack(
            [u * np.cos(turn) - v * np.sin(turn), u * np.sin(turn) + v * np.cos(turn), slope * u], axis=1
        )
        + START
    )
    speed = np.zeros_like(x)
    step = 1.0 / (fps * SUBSTEPS)
    batches = [
        (a, b, np.linalg.norm(x[a] - x[b], axis=1), c / step**2)
        for (a, b), c in ((p.T, c) for p, c in springs(NODES))
    ]
    history = [x.copy()]
    for _ in range(frames - 1):
        for _ in range(SUBSTEPS):
            speed[:, 2] += GRAVITY * step
            speed *= 1.0 - DRAG * step
            before = x.copy()
            x = x + step * speed
            for a, b, length, compliance in batches:
                _pull(x, a, b, length, compliance)
            _keep_apart(x)
            _collide(x, before)
            speed = (x - before) / step
        history.append(x.copy())
    return np.stack(history)


def _pull(x: Array, a: Array, b: Array, length: Array, compliance: float) -> None:
    """Move the ends of a batch of springs towards their rest length (all nodes have the same mass)."""
    apart = x[a] - x[b]
    now = np.sqrt((apart * apart).sum(axis=1))
    shift = (0.5 * (now - length) / now / (1.0 + 0.5 * compliance))[:, None] * apart
    x[a] -= shift
    x[b] += shift


def _keep_apart(x: Array) -> None:
    """Push nodes apart that come closer than SPACING (neighbours rest farther apart than that)."""
    pairs = cKDTree(x).query_pairs(SPACING, output_type="ndarray")
    if len(pairs):
        a, b = pairs.T
        apart = x[a] - x[b]
        distance = np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-9)
        shift = 0.25 * (SPACING - distance) / distance * apart
        np.add.at(x, a, shift)
        np.add.at(x, b, -shift)


def _collide(x: Array, before: Array) -> None:
    """Keep nodes out of ball and floor, with Coulomb friction against both."""
    away = x - BALL
    distance = np.linalg.norm(away, axis=1)
    depth = np.maximum(RADIUS + THICKNESS - distance, 0.0)
    normal = away / distance[:, None]
    x += depth[:, None] * normal
    _rub(x, before, normal, depth)
    sunk = np.maximum(THICKNESS - x[:, 2], 0.0)
    x[:, 2] += sunk
    _rub(x, before, np.broadcast_to([0.0, 0.0, 1.0], x.shape), sunk)


def _rub(x: Array, before: Array, normal: Array, depth: Array) -> None:
    moved = x - before
    moved -= (moved * normal).sum(axis=1, keepdims=True) * normal
    length = np.linalg.norm(moved, axis=1)
    x -= np.minimum(1.0, FRICTION * depth / np.maximum(length, 1e-12))[:, None] * moved


def build() -> Scene:
    """Simulate the case (no randomness: the layout is fixed)."""
    history, faces = fall(), sheet(NODES)
    squares = np.arange((NODES - 1) ** 2)
    stripe = (squares // (NODES - 1) // 4 + squares % (NODES - 1) // 4) % 2 == 0
    colours = np.where(stripe.repeat(2)[:, None], (0.08, 0.22, 0.55), (0.80, 0.78, 0.70))
    vertices, ball = octasphere(RADIUS, 4)
    bodies = (
        floor((0.50, 0.50, 0.48), (0.30, 0.31, 0.33)),
        still(2, (vertices + BALL, ball), np.tile((0.80, 0.45, 0.10), (len(ball), 1)), smooth=True),
        moving(3, history, faces, colours, smooth=True, gloss=0.03),
    )
    material = Material("cloth", history, (3,), faces=faces)
    return Scene("demo_cloth", look_at((-0.4, -3.7, 1.75), (0.0, 0.0, 0.5), 1.1), bodies, (material,))
