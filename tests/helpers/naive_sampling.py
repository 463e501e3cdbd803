"""Material sampling a second time, in plain loops over components, cells, triangles and frames.

Written from the protocol's text: slow, one path for everything, full matrices.
"""

from __future__ import annotations

import numpy as np

MAX = 65536
MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
WORD = (1 << 64) - 1


def jitter(cell):
    key = sum((int(c) & WORD) * m for c, m in zip(cell, MIX, strict=True)) & WORD
    out = []
    for m in MIX:
        z = (key + m) & WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        z ^= z >> 31
        out.append((z >> 11) / 2.0**53)
    return np.array(out)


def probe(low, high, h, rng):
    base = np.floor(low / h).astype(int)
    counts = np.floor(high / h).astype(int) - base + 1
    total = int(np.prod(counts))
    numbers = range(total) if total <= MAX else np.unique(rng.integers(0, total, MAX))
    return [base + np.array(np.unravel_index(n, counts)) for n in numbers]


def thin(points, h):
    """Rows kept, in sorted order."""
    with np.errstate(invalid="ignore"):  # beyond int64
        keyed = [(*np.floor(np.float64(p) / h).astype(int).tolist(), *map(float, p)) for p in points]
    order = sorted(range(len(points)), key=keyed.__getitem__)
    return [row for i, row in enumerate(order) if i == 0 or keyed[row][:3] != keyed[order[i - 1]][:3]]


def winding(corners, points, kind=np.float64):
    """corners (T, 3, 3), points (Q, 3) or (3,)."""
    total = 0
    for triangle in corners.astype(kind):
        a, b, c = (corner - np.asarray(points, kind) for corner in triangle)
        la, lb, lc = (np.linalg.norm(x, axis=-1) for x in (a, b, c))
        sine = (a * np.cross(b, c)).sum(-1)
        cosine = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
        total = total + np.arctan2(sine, cosine)
    return total / kind(2 * np.pi)


def mean_value(corners, faces, point):
    """Weights float32 (V,)."""
    total = np.zeros(len(corners))
    with np.errstate(all="ignore"):
        for face in faces:
            v = corners[face] - point
            d = np.linalg.norm(v, axis=1)
            u = v / np.maximum(d, 1e-9)[:, None]
            side = [np.linalg.norm(u[(i + 1) % 3] - u[(i + 2) % 3]) for i in range(3)]
            theta = [2 * np.arcsin(min(s / 2, 1.0)) for s in side]
            eta = sum(theta) / 2
            sine = np.sin(theta)
            c = [
                2 * np.sin(eta) * np.sin(eta - theta[i]) / (sine[(i + 1) % 3] * sine[(i + 2) % 3]) - 1
                for i in range(3)
            ]
            s = np.sign(np.linalg.det(u)) * np.sqrt(np.maximum(0, 1 - np.square(c)))
            if (np.abs(s) < 1e-9).any():
                continue
            for i in range(3):
                j, k = (i + 1) % 3, (i + 2) % 3
                share = (theta[i] - c[j] * theta[k] - c[k] * theta[j]) / (d[i] * sine[j] * s[k])
                if np.isfinite(share):
                    total[face[i]] += share
    if not np.isfinite(total.sum()) or abs(total.sum()) < 1e-9:
        total = np.zeros(len(corners))
        total[np.argmin(np.linalg.norm(corners - point, axis=1))] = 1.0
    return (total / total.sum()).astype(np.float32)


def components(faces, columns):
    label = list(range(columns))
    changed = True
    while changed:
        changed = False
        for face in faces:
            low = min(label[v] for v in face)
            for v in face:
                changed |= label[v] != low
                label[v] = low
    groups = {}
    for face in faces:
        groups.setdefault(label[face[0]], []).append(face)
    return [np.array(groups[k]) for k in sorted(groups)]


def surface(pos, faces, h, rng):
    a, b, c = (pos[faces[:, k]] for k in range(3))
    area = 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)
    if area.sum() <= 0:
        return []
    n = int(min(MAX, max(1, 4.0 * area.sum() / h**2)))
    chosen = rng.choice(len(faces), n, p=area / area.sum())
    u, v = rng.random(n), rng.random(n)
    found = []
    for f, s, t in zip(chosen, u, v, strict=True):
        if s + t > 1:
            s, t = 1 - s, 1 - t
        w = np.array([1 - s - t, s, t])
        found.append((w[0] * a[f] + w[1] * b[f] + w[2] * c[f], faces[f], w.astype(np.float32)))
    return [found[row] for row in thin([p for p, _, _ in found], h)]


def shell(pos, faces, h, rng):
    found = []
    for part in components(faces, len(pos)):
        inside = []
        used = np.unique(part)
        if len(part) >= 4:
            cells = probe(pos[used].min(0), pos[used].max(0), h, rng)
            number = winding(pos[part], (np.array(cells) + 0.5) * h)
            inside = [c for c, w in zip(cells, number, strict=True) if abs(w) > 0.5]
        if not inside:
            found += surface(pos, part, h, rng)
            continue
        points = [(c + jitter(c)) * h for c in inside]
        local = np.searchsorted(used, part)
        for row in thin(points, h):
            found.append((points[row], used, mean_value(pos[used], local, points[row])))
    return found


def tetrahedra(pos, finite, tets, h, rng):
    found = []
    cells = probe(pos[finite].min(0), pos[finite].max(0), h, rng)
    for tet in tets:
        corner = pos[tet[0]]
        edges = (pos[tet[1:]] - corner).T
        if abs(np.linalg.det(edges)) <= 1e-9 * h**3:
            continue
        for cell in cells:
            b = np.linalg.solve(edges, (cell + 0.5) * h - corner)
            if b.min() >= -1e-9 and b.sum() <= 1 + 1e-9:
                point = (cell + jitter(cell)) * h
                b = np.linalg.solve(edges, point - corner)
                found.append((point, tet, np.array([1 - b.sum(), *b], np.float32)))
    return [found[row] for row in thin([p for p, _, _ in found], h)]


def candidates(material, pos, h, rng):
    """pos float32 (N, 3) of one frame. Samples (point, columns, weights)."""
    finite = np.isfinite(pos).all(1)
    if not finite.any():
        return []
    one = np.ones(1, np.float32)
    filled = np.where(finite[:, None], pos, 0).astype(np.float64)
    cells = material.tets if material.tets is not None else material.faces
    if cells is None:
        return [(pos[c], np.array([c]), one) for c in np.flatnonzero(finite)]
    cells = np.array([cell for cell in cells if finite[cell].all()], int)
    if not len(cells):
        return []
    if material.tets is not None:
        return tetrahedra(filled, finite, cells, h, rng)
    return shell(filled, cells, h, rng)


def sample(materials, frames, h, rng):
    """frames: float32 (N, 3) of each material. Samples (material, point, columns, weights)."""
    found = []
    for number, (material, pos) in enumerate(zip(materials, frames, strict=True)):
        found += [(number, *rest) for rest in candidates(material, pos, h, rng)]
    return [found[row] for row in sorted(thin([s[1] for s in found], h))]


def track(materials, samples):
    """float32 (S, F, 3)."""
    out = np.empty((len(samples), len(materials[0].pos), 3), np.float32)
    for s, (number, _, columns, weights) in enumerate(samples):
        history = materials[number].pos[:, columns]
        dead = ~np.isfinite(history).all(2)
        value = np.einsum("k,fkc->fc", weights.astype(np.float64), np.where(dead[:, :, None], 0.0, history))
        value[(dead & (weights != 0)).any(1)] = np.nan
        out[s] = value
    return out


def voxel_edge(materials):
    frames = range(len(materials[0].pos))
    live = [sum(np.isfinite(m.pos[f]).all(1).sum() for m in materials) for f in frames]
    frame, rng, h = int(np.argmax(live)), np.random.default_rng([0, 0]), 1 / 32
    for _ in range(2):
        count = len(sample(materials, [m.pos[frame] for m in materials], h, rng))
        if not count:
            return None
        h *= (count / 16384) ** (1 / 3)
    return h


def paths(materials, h, seen):
    """seen : (n, 3) -> bool (n,)."""
    rng = np.random.default_rng(0)
    frames = len(materials[0].pos)
    alive = [np.isfinite(m.pos).all(2) for m in materials]
    birth = [np.where(a.any(0), a.argmax(0), frames) for a in alive]
    found = []
    for frame in range(frames):
        if not any((b == frame).any() for b in birth):
            continue
        born = [
            np.where((b == frame)[:, None], m.pos[frame], np.float32(np.nan))
            for m, b in zip(materials, birth, strict=True)
        ]
        found.append(track(materials, sample(materials, born, h, rng)))
    every = np.concatenate(found)
    every[~seen(every.reshape(-1, 3)).reshape(every.shape[:2])] = np.nan
    return every[np.isfinite(every).all(2).any(1)]
