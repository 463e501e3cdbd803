"""The cases: what of each can be shown, and which runs there are of it."""

from __future__ import annotations

from contract.cases import KINDS
from contract.names import CAMERA, MESHES, REFERENCE_VIDEO, RENDER, WORLD
from viewer.trees import Trees, listing


def case_names(trees: Trees) -> list[str]:
    """``<kind>/<case>`` of every case that has a video or data, sorted."""
    found = set()
    for root in (trees.cases, trees.data):
        for kind in KINDS:
            for item in listing(root, (kind,)):
                if item.folder and not item.name.startswith("."):
                    found.add(f"{kind}/{item.name}")
    return sorted(found)


def case_files(trees: Trees, case: str) -> dict[str, bool]:
    """What there is of a case: ``video`` of the reference, ``world``'s geometry, its ``render``."""
    kind, name = case.split("/", 1)
    names = {item.name for item in listing(trees.cases, (kind, name))}
    world = {item.name for item in listing(trees.data, (kind, name, WORLD))}
    return {
        "video": REFERENCE_VIDEO in names,
        "world": CAMERA in world and MESHES in world,
        "render": RENDER in world,
    }
