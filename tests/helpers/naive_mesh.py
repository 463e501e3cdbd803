"""Mesh quality a second time, the slow way: dictionaries, networkx, trimesh and libigl."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import igl
import networkx as nx
import numpy as np
import trimesh
from igl.copyleft.cgal import remesh_self_intersections

Faces = list[tuple[int, int, int]]


class FakeWorld:
    """Meshes in memory: ``{id: {frame: (vertices, faces)}}``; an object lives from its first to its last
    frame.
    """

    def __init__(self, frames: int, meshes: dict[int, dict[int, tuple[np.ndarray, np.ndarray]]]) -> None:
        self.frames = frames
        self._meshes = {
            number: {f: (np.asarray(v, np.float32), np.asarray(t, np.int32)) for f, (v, t) in entry.items()}
            for number, entry in sorted(meshes.items())
        }

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._meshes)

    def lifetime(self, number: int) -> range:
        stored = self._meshes[number]
        return range(min(stored), max(stored) + 1)

    def object_mesh(self, number: int, frame: int) -> tuple[np.ndarray, np.ndarray]:
        empty = np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32)
        return self._meshes[number].get(frame, empty)


def sides(face: tuple[int, int, int]) -> list[tuple[int, int]]:
    a, b, c = (int(v) for v in face)
    return [(a, b), (b, c), (c, a)]


def uses(faces: Faces) -> Counter[tuple[int, int]]:
    """How many face sides lie on each undirected edge."""
    return Counter((min(s), max(s)) for face in faces for s in sides(face))


def naive_components(faces: Faces) -> list[list[int]]:
    """Face indices of each component, ordered by lowest face."""
    owners = defaultdict(list)
    for index, face in enumerate(faces):
        for a, b in sides(face):
            owners[min(a, b), max(a, b)].append(index)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(faces)))
    graph.add_edges_from(pair for pair in owners.values() if len(pair) == 2 and pair[0] != pair[1])
    return sorted(sorted(part) for part in nx.connected_components(graph))


def boundary_edges(faces: Faces) -> list[tuple[int, int]]:
    """Directed sides of the edges used once, sorted by (larger, smaller) vertex."""
    count = uses(faces)
    lone = [s for face in faces for s in sides(face) if count[min(s), max(s)] == 1]
    return sorted(lone, key=lambda s: (max(s), min(s)))


def naive_fillings(faces: Faces) -> Faces:
    """Triangles for the boundary cycles of three or four vertices, wound as trimesh 4.11 does."""
    boundary = boundary_edges(faces)
    if len(faces) < 4 or len(boundary) < 3:
        return []
    directed = set(boundary)
    laid = []
    for cycle in nx.cycle_basis(nx.from_edgelist(boundary)):
        if len(cycle) == 3:
            laid.append(tuple(cycle))
        elif len(cycle) == 4:
            laid += [tuple(cycle[:3]), (cycle[2], cycle[3], cycle[0])]
    return [face[::-1] if (face[0], face[1]) in directed else face for face in laid]


def cross(vertices: np.ndarray, faces: Faces) -> np.ndarray:
    return trimesh.triangles.cross(vertices[np.array(faces, dtype=int).reshape(-1, 3)])


def areas(vertices: np.ndarray, faces: Faces) -> np.ndarray:
    return np.sqrt((cross(vertices, faces) ** 2).sum(axis=1)) / 2


def naive_median(vertices: np.ndarray, faces: Faces, chosen: np.ndarray) -> float:
    """Median |winding number| behind the chosen faces, by libigl's fast winding number."""
    mesh = trimesh.Trimesh(vertices, np.array(faces), process=False)
    probes = mesh.triangles_center - mesh.face_normals * (1e-3 * mesh.scale)
    numbers = igl.fast_winding_number(vertices, np.array(faces, dtype=np.int64), probes[chosen])
    return float(np.median(np.abs(numbers)))


def naive_clean(vertices: np.ndarray, faces: Faces) -> bool:
    used = sorted({v for face in faces for v in face})
    first: dict[tuple[int, ...], int] = {}
    weld = {v: first.setdefault(tuple(np.round(vertices[v] * 1e8).astype(np.int64)), v) for v in used}
    welded = [tuple(weld[v] for v in face) for face in faces]
    if any(len(set(face)) < 3 for face in welded):
        return False
    if len({tuple(sorted(face)) for face in welded}) < len(welded):
        return False
    return bool((areas(vertices, welded) > 0).all())


def naive_intersects(vertices: np.ndarray, faces: Faces) -> bool:
    solid = [face for face, area in zip(faces, areas(vertices, faces), strict=True) if area > 0]
    if len(solid) < 2:
        return False
    found = remesh_self_intersections(vertices, np.array(solid, dtype=np.int64), detect_only=True)[2]
    return len(found) > 0


def takes_from_generator(faces: Faces) -> bool:
    """Whether an open component (before filling) draws its probes."""
    if not 2 <= len(faces) <= 5:
        return True
    boundary = boundary_edges(faces)
    if len(faces) < 4 or len(boundary) < 3:
        return False
    graph = nx.MultiGraph(boundary)
    if any(degree != 2 for _, degree in graph.degree()):
        return True
    return any(len(loop) <= 4 for loop in nx.connected_components(graph))


def naive_component(
    vertices: np.ndarray, faces: Faces, generator: np.random.Generator
) -> tuple[bool, bool, bool, bool]:
    """Watertight, manifold, clean, no self-intersection of one component; vertices float64."""
    if len(faces) == 1 and areas(vertices, faces)[0] > 0:
        return True, True, naive_clean(vertices, faces), True
    closed = all(count == 2 for count in uses(faces).values())
    own = faces
    if not closed:
        added = naive_fillings(faces)
        length = np.linalg.norm(cross(vertices, added), axis=1)
        faces = faces + [face for face, size in zip(added, length, strict=True) if size > 1e-13]
    count = uses(faces)
    watertight = all(n == 2 for n in count.values())
    if not watertight:
        chosen = np.arange(len(faces))
        if takes_from_generator(own):
            chosen = generator.choice(len(faces), min(200, len(faces)), replace=False)
        solid = not naive_median(vertices, faces, chosen) < 0.75
        watertight = not (solid and any(n == 1 for n in count.values()))
    manifold = closed or not any(n > 2 for n in count.values())
    return watertight, manifold, naive_clean(vertices, faces), not naive_intersects(vertices, faces)


def naive_object(vertices: np.ndarray, faces: np.ndarray, generator: np.random.Generator) -> tuple[bool, ...]:
    listed = [tuple(int(v) for v in face) for face in faces]
    wide = vertices.astype(np.float64)
    verdicts = [
        naive_component(wide, [listed[i] for i in part], generator) for part in naive_components(listed)
    ]
    return tuple(all(check) for check in zip(*verdicts, strict=True))


def naive_world(world: FakeWorld) -> list[list[tuple[bool, ...]]]:
    """Verdicts by frame; constant objects once, with a generator of their own."""
    constant = {}
    for number in world.ids:
        meshes = [world.object_mesh(number, f) for f in world.lifetime(number)]
        same = all(np.array_equal(a, b) for one, two in combinations(meshes, 2) for a, b in zip(one, two))  # noqa: B905
        if same and len(meshes[0][1]):
            constant[number] = naive_object(*meshes[0], np.random.default_rng(0))
    rows = []
    for frame in range(world.frames):
        generator = np.random.default_rng(8191 * frame)
        row = []
        for number in world.ids:
            if frame not in world.lifetime(number):
                continue
            vertices, faces = world.object_mesh(number, frame)
            if number in constant:
                row.append(constant[number])
            elif len(faces):
                row.append(naive_object(vertices, faces, generator))
        rows.append(row)
    return rows
