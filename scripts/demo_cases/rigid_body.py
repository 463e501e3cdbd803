"""Boxes and balls under gravity on the floor z = 0: impulses with friction and restitution, fixed substeps.

Contacts of one substep are solved together (projected Jacobi; each body's mass is shared out among its
contacts, so that the sum of all impulses stays bounded). Bodies touch where points on the surface of one lie
inside another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demo_cases.scene import CONTACT_MARGIN, FPS, FRAMES, GRAVITY, Array

SUBSTEPS = 20
ITERATIONS = 16
FRICTION = 0.45
RESTITUTION = 0.5
BOUNCE_SPEED = 0.35
"""Impacts slower than this (m/s) do not bounce, so that bodies come to rest."""

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Solid:
    """Initial state. ``half``: half sides of a box, or ``(r, r, r)`` of a ball. kg/m³ and radians."""

    half: tuple[float, float, float]
    position: tuple[float, float, float]
    ball: bool = False
    velocity: tuple[float, float, float] = (0.0, 0.0, 0.0)
    spin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    turn: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Initial orientation as a rotation vector."""
    density: float = 400.0


@dataclass(frozen=True)
class Motion:
    """History of n bodies: positions (F,n,3), rotations body-to-world (F,n,3,3), energy (F,) in joules."""

    positions: Array
    rotations: Array
    energy: Array


def rotation(vectors: Array) -> Array:
    """Rotation matrices (n,3,3) of rotation vectors (n,3), by Rodrigues' formula."""
    angle = np.linalg.norm(vectors, axis=1)[:, None, None]
    axis = vectors / np.maximum(angle[:, :, 0], 1e-12)
    x, y, z = axis.T
    zero = np.zeros_like(x)
    skew = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
    return np.asarray(np.eye(3) + np.sin(angle) * skew + (1.0 - np.cos(angle)) * (skew @ skew))


def simulate(solids: Sequence[Solid], frames: int = FRAMES, fps: int = FPS) -> Motion:
    """Run the bodies for ``frames`` frames; frame 0 is the initial state."""
    state = _State(solids)
    step = 1.0 / (fps * SUBSTEPS)
    history = [state.snapshot()]
    for _ in range(frames - 1):
        for _ in range(SUBSTEPS):
            state.advance(step)
        history.append(state.snapshot())
    positions, rotations, energy = zip(*history, strict=True)
    return Motion(np.stack(positions), np.stack(rotations), np.array(energy))


def surface_points(half: Array) -> Array:
    """Points of a box that are tested against other bodies: corners, four points an edge, face centres."""
    ticks = np.linspace(-1.0, 1.0, 6)
    grid = np.stack(np.meshgrid(ticks, ticks, ticks, indexing="ij"), axis=-1).reshape(-1, 3)
    edges = grid[(np.abs(grid) == 1.0).sum(axis=1) >= 2]
    return np.concatenate([edges, np.eye(3), -np.eye(3)]) * half


def _arm(arms: Array) -> Array:
    """Maps (C,3,6) from a body's velocity and spin to the velocity at the ends of arms (C,3): v + ω × arm."""
    maps = np.zeros((len(arms), 3, 6))
    maps[:, [0, 1, 2], [0, 1, 2]] = 1.0
    maps[:, [0, 1, 2], [4, 5, 3]] = arms[:, [2, 0, 1]]
    maps[:, [0, 1, 2], [5, 3, 4]] = -arms[:, [1, 2, 0]]
    return maps


class _State:
    """Arrays of n bodies and, at index n, of the floor, which nothing moves."""

    def __init__(self, solids: Sequence[Solid]) -> None:
        self.n = len(solids)
        self.half = np.array([s.half for s in solids])
        self.ball = np.array([s.ball for s in solids])
        side = 2.0 * self.half
        volume = np.where(self.ball, 4.0 / 3.0 * np.pi * self.half[:, 0] ** 3, side.prod(axis=1))
        self.mass = volume * [s.density for s in solids]
        square = side**2
        boxes = (square.sum(axis=1, keepdims=True) - square) / 12.0
        self.inertia = self.mass[:, None] * np.where(self.ball[:, None], 0.4 * self.half**2, boxes)
        self.x = np.array([s.position for s in solids])
        self.v = np.concatenate([[s.velocity for s in solids], np.zeros((1, 3))])
        self.w = np.concatenate([[s.spin for s in solids], np.zeros((1, 3))])
        self.r = rotation(np.array([s.turn for s in solids]))
        self.reach = np.where(self.ball, self.half[:, 0], np.linalg.norm(self.half, axis=1))
        self.points = [surface_points(h) for h in self.half]

    def snapshot(self) -> tuple[Array, Array, float]:
        local = np.einsum("nji,nj->ni", self.r, self.w[:-1])
        kinetic = 0.5 * (self.mass * (self.v[:-1] ** 2).sum(1)).sum() + 0.5 * (self.inertia * local**2).sum()
        return self.x.copy(), self.r.copy(), float(kinetic - GRAVITY * (self.mass * self.x[:, 2]).sum())

    def advance(self, step: float) -> None:
        self.v[:-1, 2] += GRAVITY * step
        contacts = self._contacts()
        if contacts is not None:
            self._solve(*contacts)
        self.x += step * self.v[:-1]
        self.r = rotation(step * self.w[:-1]) @ self.r
        # One step of Newton's iteration towards the nearest rotation keeps rounding from piling up.
        self.r = 1.5 * self.r - 0.5 * self.r @ self.r.transpose(0, 2, 1) @ self.r

    def _contacts(self) -> tuple[Index, Index, Array, Array, Array] | None:
        """Touching points as (body a, body b, point, normal from b to a, depth), or None."""
        found: list[tuple[int, int, Array, Array, Array]] = []
        for a in np.flatnonzero(self.x[:, 2] < self.reach + CONTACT_MARGIN):
            found.append(self._floor(int(a)))
        gap = np.linalg.norm(self.x[:, None] - self.x[None], axis=-1) - self.reach[:, None] - self.reach[None]
        for a, b in np.argwhere(np.triu(gap < 0.0, 1)):
            found += self._pair(int(a), int(b))
        found = [item for item in found if len(item[4])]
        if not found:
            return None
        count = [len(item[4]) for item in found]
        first = np.repeat([item[0] for item in found], count)
        second = np.repeat([item[1] for item in found], count)
        points, normals, depth = (np.concatenate([item[k] for item in found]) for k in (2, 3, 4))
        return first, second, points, normals, depth

    def _floor(self, a: int) -> tuple[int, int, Array, Array, Array]:
        if self.ball[a]:
            points = self.x[a : a + 1] - [0.0, 0.0, self.half[a, 0]]
        else:
            signs = 1.0 - 2.0 * ((np.arange(8)[:, None] >> np.arange(3)) & 1)
            points = self.x[a] + (signs * self.half[a]) @ self.r[a].T
        depth = CONTACT_MARGIN - points[:, 2]
        hit = depth > 0.0
        normals = np.tile([0.0, 0.0, 1.0], (int(hit.sum()), 1))
        return a, self.n, points[hit], normals, depth[hit]

    def _pair(self, a: int, b: int) -> list[tuple[int, int, Array, Array, Array]]:
        if self.ball[a] and self.ball[b]:
            away = self.x[a] - self.x[b]
            distance = float(np.linalg.norm(away))
            normal = away / distance
            depth = np.array([self.half[a, 0] + self.half[b, 0] - distance])
            return [(a, b, (self.x[b] + normal * self.half[b, 0])[None], normal[None], depth)]
        if self.ball[a] or self.ball[b]:
            return [self._ball_box(a, b) if self.ball[a] else self._ball_box(b, a)]
        return [self._points_in_box(a, b), self._points_in_box(b, a)]

    def _ball_box(self, a: int, b: int) -> tuple[int, int, Array, Array, Array]:
        local = (self.x[a] - self.x[b]) @ self.r[b]
        nearest = np.clip(local, -self.half[b], self.half[b])
        away = local - nearest
        distance = float(np.linalg.norm(away))
        if distance == 0.0:  # the centre is inside: leave through the nearest side
            axis = int(np.argmin(self.half[b] - np.abs(local)))
            away = np.sign(local[axis]) * np.eye(3)[axis]
            depth = self.half[a, 0] + self.half[b, axis] - abs(local[axis])
        else:
            away = away / distance
            depth = self.half[a, 0] - distance
        keep = int(depth > 0.0)
        point, normal = self.x[b] + self.r[b] @ nearest, self.r[b] @ away
        return a, b, point[None][:keep], normal[None][:keep], np.array([depth])[:keep]

    def _points_in_box(self, a: int, b: int) -> tuple[int, int, Array, Array, Array]:
        points = self.x[a] + self.points[a] @ self.r[a].T
        local = (points - self.x[b]) @ self.r[b]
        room = self.half[b] - np.abs(local)
        hit = (room > 0.0).all(axis=1)
        points, local, room = points[hit], local[hit], room[hit]
        axis = np.argmin(room, axis=1)
        rows = np.arange(len(points))
        normals = np.sign(local[rows, axis])[:, None] * self.r[b].T[axis]
        return a, b, points, normals, room[rows, axis]

    def _solve(self, a: Index, b: Index, points: Array, normals: Array, depth: Array) -> None:
        rows, count = np.arange(len(a)), self.n + 1
        # Inverse masses of the six degrees of freedom of every body; the floor's are zero.
        mobile = np.zeros((count, 6, 6))
        mobile[:-1, :3, :3] = np.eye(3) / self.mass[:, None, None]
        mobile[:-1, 3:, 3:] = (self.r / self.inertia[:, None, :]) @ self.r.transpose(0, 2, 1)
        share = np.bincount(np.concatenate([a, b]), minlength=count).astype(float)
        centres = np.concatenate([self.x, np.zeros((1, 3))])
        arms = {1.0: (a, _arm(points - centres[a])), -1.0: (b, _arm(points - centres[b]))}
        # Velocity of a against b at every contact, as a map of all velocities; what each contact feels.
        jacobian = np.zeros((len(a), 3, count, 6))
        felt = np.zeros((len(a), 3, 3))
        for sign, (body, arm) in arms.items():
            jacobian[rows, :, body] += sign * arm
            felt += share[body, None, None] * (arm @ mobile[body] @ arm.transpose(0, 2, 1))
        pushed = np.einsum("bij,ckbj->bick", mobile, jacobian).reshape(6 * count, -1)
        matrix = jacobian.reshape(-1, 6 * count)
        speeds = np.concatenate([self.v, self.w], axis=1).ravel()

        def along(directions: Array) -> Array:
            """Inverse of the mass that each contact feels in its direction (C,3)."""
            return np.asarray(((felt @ directions[:, :, None])[:, :, 0] * directions).sum(axis=1))

        approach = ((matrix @ speeds).reshape(-1, 3) * normals).sum(axis=1)
        bounce = np.where(approach < -BOUNCE_SPEED, -RESTITUTION * approach, 0.0)
        resistance = along(normals)
        pressed, dragged = np.zeros(len(a)), np.zeros((len(a), 3))
        for _ in range(ITERATIONS):
            missing = bounce - ((matrix @ speeds).reshape(-1, 3) * normals).sum(axis=1)
            total = np.maximum(pressed + missing / resistance, 0.0)
            speeds = speeds + pushed @ ((total - pressed)[:, None] * normals).ravel()
            pressed = total
            sliding = (matrix @ speeds).reshape(-1, 3)
            sliding = sliding - (sliding * normals).sum(axis=1, keepdims=True) * normals
            way = sliding / np.maximum(np.sqrt((sliding**2).sum(axis=1, keepdims=True)), 1e-9)
            drag = dragged - sliding / np.maximum(along(way), 1e-12)[:, None]
            limit = FRICTION * pressed / np.maximum(np.sqrt((drag**2).sum(axis=1)), 1e-12)
            drag = drag * np.minimum(limit, 1.0)[:, None]
            speeds = speeds + pushed @ (drag - dragged).ravel()
            dragged = drag
        self.v, self.w = np.split(speeds.reshape(count, 6), 2, axis=1)
        self._separate(a, b, normals, depth, mobile[:, 0, 0], share)

    def _separate(
        self, a: Index, b: Index, normals: Array, depth: Array, mobile: Array, share: Array
    ) -> None:
        """Move touching bodies apart by part of what they overlap, without giving them speed."""
        total = mobile[a] + mobile[b]
        shift = (0.8 * np.maximum(depth - 0.0005, 0.0) / total)[:, None] * normals
        moved = np.zeros((self.n + 1, 3))
        np.add.at(moved, a, (mobile[a] / share[a])[:, None] * shift)
        np.add.at(moved, b, -(mobile[b] / np.maximum(share[b], 1.0))[:, None] * shift)
        self.x += moved[:-1]
