"""Scenes of the fixture worlds and of worlds in memory, for the metrics that read estimates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scorer.scene import Scene

REAL_RUNS = (
    "runs/real/clip_cloth/coarse/1",
    "runs/real/clip_rigid/late/1",
    "runs/real/clip_rigid/noisy/1",
    "runs/real/clip_rigid/self/1",
    "runs/real/long/late/1",
)


def fixture_scene(root: Path, run: str) -> Scene:
    """The scene of a run of the fixture worlds."""
    case = "/".join(run.split("/")[1:3])
    return Scene(
        case=case,
        world_path=root / run / "workspace" / "world",
        reference_path=None,
        annotation_path=root / "data" / case / "annotation" / "dynamic_mask.npz",
        estimates_path=root / "data" / case / "estimates",
        video_path=root / "cases" / case / "reference.mp4",
    )


def memory_scene(world: Any, estimates: Path, video: Path = Path("missing.mp4")) -> Any:
    """A scene whose submission is a world in memory."""
    return SimpleNamespace(submission=world, estimates_path=estimates, video_path=video)


def agree(
    found: dict[str, Any], expected: dict[str, Any], prefixes: tuple[str, ...], **tolerance: float
) -> None:
    """Compare detail fields with the public scorer's: numbers within 1e-6 (or as given), the rest exactly.

    The fixture leaves long lists out.
    """
    wanted = {key: value for key, value in expected.items() if key.startswith(prefixes)}
    assert wanted
    assert wanted.keys() <= found.keys()
    for key, value in wanted.items():
        ours = found[key]
        if isinstance(value, list) and value and isinstance(value[0], float):
            assert len(ours) == len(value)
            assert max(abs(a - b) for a, b in zip(ours, value, strict=True)) <= 2e-6, key
        elif isinstance(value, float):
            assert abs(ours - value) <= tolerance.get(key, 1e-6), (key, ours, value)
        else:
            assert ours == value, key
