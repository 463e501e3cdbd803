"""The rules of a world a second time, as plainly as they can be put: everything in memory, loops, no care.

Only for worlds whose files can be read; independent of :mod:`world.validation` but for the video's facts.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np

Pairs = list[tuple[str, str]]
Meshes = dict[int, dict[int, tuple[np.ndarray, np.ndarray]]]


def naive_check(world: Path, frames: int, *, scorer: bool) -> Pairs:
    """``(name, field)`` of every violation, in order."""
    found = naive_camera(json.loads((world / "camera.json").read_text()))
    meshes: Meshes = {}
    declared: set[int] = set()
    for path in sorted((world / "meshes").iterdir(), key=lambda path: path.name):
        if path.suffix != ".npz" or not path.stem.isdecimal() or int(path.stem) == 0:
            found.append((f"meshes/{path.name}", "name"))
        elif int(path.stem) in declared:
            found.append((f"meshes/{path.name}", "id"))
        else:
            declared.add(int(path.stem))
            with np.load(path) as archive:
                arrays = {name: archive[name] for name in archive.files}
            fault, content = naive_mesh(arrays, frames, scorer)
            if fault:
                found.append((f"meshes/{path.name}", fault))
            else:
                meshes[int(path.stem)] = content
    if scorer and meshes and not any(len(f) for mesh in meshes.values() for _, f in mesh.values()):
        found.append(("meshes", "faces"))
    moving: set[int] | None = set()
    for path in sorted((world / "dynamics").glob("*.npz"), key=lambda path: path.name):
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        faults, ids = naive_dynamics(arrays, frames, declared)
        found += [(f"dynamics/{path.name}", fault) for fault in faults]
        moving = None if ids is None or moving is None else moving | ids
    if moving is None:
        return found
    liquid = naive_solver(world, moving, set(meshes), scorer, found)
    for identifier in sorted(set(meshes) - moving - liquid):
        content = meshes[identifier]
        first = content[min(content)]
        for frame in sorted(content):
            if not np.array_equal(content[frame][0], first[0]):
                found.append((f"meshes/{identifier}.npz", f"vertices_{frame:04d}"))
                break
            if not np.array_equal(content[frame][1], first[1]):
                found.append((f"meshes/{identifier}.npz", f"faces_{frame:04d}"))
                break
    return found


def naive_camera(value: object) -> Pairs:
    """C3–C8 on parsed JSON."""
    if not isinstance(value, dict):
        return [("camera.json", "json")]
    found: Pairs = []
    matrices = {}
    for key, size in (("intrinsics", 3), ("extrinsic", 4)):
        rows = value.get(key)
        try:
            good = len(rows) == size and all(isinstance(row, list) and len(row) == size for row in rows)
            numbers = [[math.nan if x is None else float(x) for x in row] for row in rows]
            good = good and all(math.isfinite(x) for row in numbers for x in row)
        except (TypeError, ValueError, OverflowError):
            good = False
        if good:
            matrices[key] = numbers
        else:
            found.append(("camera.json", key))
    if not found:
        r = [row[:3] for row in matrices["extrinsic"][:3]]
        worst = max(
            abs(sum(r[k][i] * r[k][j] for k in range(3)) - (i == j)) for i in range(3) for j in range(3)
        )
        det = sum(
            r[0][i] * (r[1][(i + 1) % 3] * r[2][(i + 2) % 3] - r[1][(i + 2) % 3] * r[2][(i + 1) % 3])
            for i in range(3)
        )
        if worst > 1e-4 or det < 0:
            found.append(("camera.json", "extrinsic"))
    return found


def naive_mesh(
    arrays: dict[str, np.ndarray], frames: int, scorer: bool
) -> tuple[str, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """M5–M15: the first fault, and the content."""
    for name in arrays:
        if not re.fullmatch(r"(vertices|faces)_[0-9]{4}", name):
            return name, {}
    if not arrays:
        return "members", {}
    vertex_frames = {int(name[-4:]) for name in arrays if name.startswith("v")}
    face_frames = {int(name[-4:]) for name in arrays if name.startswith("f")}
    if vertex_frames != face_frames:
        return f"frame {min(vertex_frames ^ face_frames):04d}", {}
    lifetime = sorted(vertex_frames)
    if lifetime != list(range(lifetime[0], lifetime[-1] + 1)):
        return "frames", {}
    if lifetime[-1] >= frames:
        return f"frame {lifetime[-1]:04d}", {}
    content = {}
    for frame in lifetime:
        vertices, faces = arrays[f"vertices_{frame:04d}"], arrays[f"faces_{frame:04d}"]
        if scorer:
            vertices = vertices.astype(np.float32)
        if vertices.dtype != np.float32 or vertices.ndim != 2 or vertices.shape[1] != 3:
            return f"vertices_{frame:04d}", {}
        if not np.isfinite(vertices).all():
            return f"vertices_{frame:04d}", {}
        if faces.dtype != np.int32 or faces.ndim != 2 or faces.shape[1] != 3:
            return f"faces_{frame:04d}", {}
        if any(i < 0 or i >= len(vertices) for i in faces.ravel().tolist()):
            return f"faces_{frame:04d}", {}
        content[frame] = (vertices, faces)
    return "", content


def naive_dynamics(
    arrays: dict[str, np.ndarray], frames: int, declared: set[int]
) -> tuple[list[str], set[int] | None]:
    """D3–D15: the faults, and the ids unless they are unusable."""
    unknown = sorted(set(arrays) - {"pos", "ids", "faces", "tets"})
    if unknown:
        return unknown[:1], None
    for key in ("pos", "ids"):
        if key not in arrays:
            return [key], None
    if "faces" in arrays and "tets" in arrays:
        return ["connectivity"], None
    pos, ids = arrays["pos"], arrays["ids"]
    found = []
    if pos.dtype != np.float32 or pos.ndim != 3 or pos.shape[2] != 3 or pos.shape[0] != frames:
        found.append("pos")
    else:
        found += naive_lifetimes(pos)
    usable: set[int] | None = None
    if ids.dtype != np.uint16 or ids.ndim != 1 or len(ids) == 0:
        found.append("ids")
    else:
        usable = set(ids.tolist())
        if usable - declared:
            found.append("ids")
    for key, width in (("faces", 3), ("tets", 4)):
        if key in arrays:
            cells = arrays[key]
            good = cells.dtype == np.int32 and cells.ndim == 2 and cells.shape[1] == width
            if good and pos.ndim == 3:
                good = all(0 <= i < pos.shape[1] for i in cells.ravel().tolist())
            if not good:
                found.append(key)
    return found, usable


def naive_lifetimes(pos: np.ndarray) -> list[str]:
    """D9."""
    for f in range(pos.shape[0]):
        for c in range(pos.shape[1]):
            finite = [math.isfinite(x) for x in pos[f, c].tolist()]
            if not all(finite) and not all(math.isnan(x) for x in pos[f, c].tolist()):
                return [f"pos[{f},{c}]"]
    lives = [
        "".join("1" if np.isfinite(pos[f, c, 0]) else "0" for f in range(len(pos)))
        for c in range(pos.shape[1])
    ]
    for c, life in enumerate(lives):
        if "1" not in life:
            return [f"pos[:,{c}]"]
    for c, life in enumerate(lives):
        if "0" in life.strip("0"):
            return [f"pos[:,{c}]"]
    return []


def naive_solver(world: Path, moving: set[int], readable: set[int], scorer: bool, found: Pairs) -> set[int]:
    """S1–S10 for a manifest that is a JSON object and names a cache below ``solver/``."""
    if not (world / "solver").exists():
        return set()
    name = "solver/manifest.json"
    manifest = json.loads((world / name).read_text())
    keys = ("cache", "fps", "time_scale", "metres_per_unit", "domain_min", "frames", "liquid_ids")
    found += [(name, key) for key in keys if key not in manifest]
    ids = manifest.get("liquid_ids")
    usable = isinstance(ids, list) and len(ids) > 0 and all(isinstance(i, int) for i in ids)
    span = manifest.get("frames")
    spanned = (
        isinstance(span, list)
        and len(span) == 2
        and all(isinstance(i, int) and not isinstance(i, bool) for i in span)
        and 0 <= span[0] <= span[1]
    )
    cache = world / "solver" / str(manifest.get("cache"))
    if "cache" in manifest:
        if not cache.is_dir():
            found.append((name, "cache"))
        elif scorer and usable and spanned and set(ids) - moving:
            frames = list(range(span[0], span[1] + 1))
            if span[0] == 0 and not (cache / "config" / "config_0000.uni").exists():
                frames = [frame + 1 for frame in frames]
            if any(not (cache / "config" / f"config_{frame:04d}.uni").exists() for frame in frames):
                found.append((name, "cache"))

    def number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    for key in ("fps", "time_scale", "metres_per_unit"):
        if key in manifest and not (number(manifest[key]) and manifest[key] > 0):
            found.append((name, key))
    if "domain_min" in manifest:
        corner = manifest["domain_min"]
        if not (isinstance(corner, list) and len(corner) == 3 and all(number(x) for x in corner)):
            found.append((name, "domain_min"))
    if "frames" in manifest and not spanned:
        found.append((name, "frames"))
    if not usable:
        found.append((name, "liquid_ids"))
        return set()
    if set(ids) - readable:
        found.append((name, "liquid_ids"))
    return set(ids)
