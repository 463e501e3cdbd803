"""What the rules let pass and still hurts: advice never changes the verdict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from contract.constants import MAX_MESH_FRAMES, MAX_MESH_ID
from contract.names import DYNAMICS, MESHES, RENDER, SOLVER, TRACERS
from world.validation.dynamics import DynamicsListing, DynamicsReport
from world.validation.files import mode_of
from world.validation.meshes import MeshListing, MeshReport
from world.validation.violation import Violation

_NAMED = 3


def mesh_advice(listing: MeshListing, reports: Sequence[MeshReport], *, no_triangle: bool) -> list[Violation]:
    """Names that readers may stumble over, and worlds without a surface."""
    found = []
    for mesh in listing.files:
        name = f"{MESHES}/{mesh.file}"
        if mesh.id > MAX_MESH_ID:
            text = f"{mesh.id} is above {MAX_MESH_ID}: no dynamics archive can list it"
            found.append(Violation(name, "id", text))
        if mesh.file != f"{mesh.id}.npz":
            found.append(Violation(name, "name", f"should be written {mesh.id}.npz"))
    if listing.present and not listing.files:
        found.append(Violation(MESHES, "path", "is empty: there is no geometry to score"))
    elif no_triangle:
        found.append(Violation(MESHES, "faces", NO_TRIANGLE))
    elif any(report.violation is None and report.triangles == 0 for report in reports):
        empty = [r.mesh.file for r in reports if r.violation is None and r.triangles == 0]
        text = f"of {_few(empty)} hold no triangle at any frame"
        found.append(Violation(MESHES, "faces", text))
    return found


NO_TRIANGLE = "hold no triangle at any frame of any archive: the scorer refuses such a world"


def has_no_triangle(reports: Sequence[MeshReport]) -> bool:
    """Whether there are sound archives and none of them holds a triangle."""
    sound = [report for report in reports if report.violation is None]
    return bool(sound) and all(report.triangles == 0 for report in sound)


def dynamics_advice(
    listing: DynamicsListing, reports: Sequence[DynamicsReport], liquid: Collection[int]
) -> list[Violation]:
    """Archives without content, files that nothing reads, worlds in which nothing moves."""
    found = []
    if listing.files == [] and not liquid:
        text = "is empty, so nothing in this world moves: every motion metric compares with nothing"
        found.append(Violation(DYNAMICS, "path", text))
    for report in reports:
        if report.columns == 0:
            found.append(Violation(report.name, "pos", "has no columns: it holds no material"))
    if listing.ignored:
        text = f"holds what nothing reads: {_few(listing.ignored)} (only *.npz are read)"
        found.append(Violation(DYNAMICS, "name", text))
    return found


def world_advice(world: Path, frames: int | None) -> list[Violation]:
    """Facts about the world as a whole."""
    found = []
    if frames is not None and frames > MAX_MESH_FRAMES:
        text = f"has {frames} frames; mesh archives can number {MAX_MESH_FRAMES}"
        found.append(Violation(RENDER, "frames", text))
    if mode_of(world / SOLVER / TRACERS) is not None:
        text = "is not used: tracers are extracted from the cache when the world is scored"
        found.append(Violation(f"{SOLVER}/{TRACERS}", "path", text))
    return found


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
