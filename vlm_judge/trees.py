"""Where references and renders lie, and in which state a render is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from contract.cases import KINDS
from contract.names import REFERENCE_VIDEO, RENDER, WORKSPACE, WORLD
from vlm_judge.answers import ABSENT, CORRUPT, GATED
from vlm_judge.decoding import Sampler
from vlm_judge.framestore import Frames, FrameStore
from vlm_judge.questions import Scene
from world.video import VideoError

OK = "ok"
UNREADABLE = "unreadable"
"""The file is there, but this machine does not give it to us: nobody's loss."""


@dataclass(frozen=True)
class Trees:
    """The trees of cases and runs, and which trial of each system counts."""

    runs: Path
    cases: Path
    trial: int = 1

    def reference(self, scene: Scene) -> Path | None:
        return _first(self.cases / kind / scene.id / REFERENCE_VIDEO for kind in _kinds(scene))

    def render(self, scene: Scene, system: str) -> Path | None:
        return _first(
            self.runs / kind / scene.id / system / str(self.trial) / WORKSPACE / WORLD / RENDER
            for kind in _kinds(scene)
        )

    def systems(self) -> tuple[list[str], list[str]]:
        """Systems with a render anywhere, and those that have runs only; both sorted."""
        runs = {path.parent.name for path in self.runs.glob(f"*/*/*/{self.trial}")}
        pattern = f"*/*/*/{self.trial}/{WORKSPACE}/{WORLD}/{RENDER}"
        delivered = {path.parents[3].name for path in self.runs.glob(pattern)}
        return sorted(delivered), sorted(runs - delivered)


@dataclass(frozen=True)
class Subject:
    """A render as the judge may see it. state : ok, absent, corrupt, gated or unreadable. reason : why,
    in words."""

    state: str
    reason: str = ""
    frames: Frames | None = None

    @property
    def delivered(self) -> bool:
        return self.state not in (ABSENT, CORRUPT)


def look(path: Path | None, sampler: Sampler, store: FrameStore, *, gated: bool) -> Subject:
    """Decode a render and pass it through the blank-render gate (unless ``gated`` is False)."""
    if path is None:
        return Subject(ABSENT, "no render")
    try:
        frames = store.frames(path, sampler)
    except VideoError as error:
        return Subject(CORRUPT, str(error))
    except OSError as error:
        return Subject(UNREADABLE, error.strerror or str(error))
    if gated and frames.gate.gated:
        values = frames.gate.as_json()
        return Subject(GATED, f"blank: edge {values['edge']}, top colour {values['top_colour']}", frames)
    return Subject(OK, "", frames)


def _kinds(scene: Scene) -> list[str]:
    """The scene's own kind first: a case of the other kind may have the same name."""
    return sorted(KINDS, key=lambda kind: kind != scene.kind)


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)
