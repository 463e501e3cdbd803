"""What a metric with a model gets to see of a world."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Subject:
    """One world in a model pass.

    unit : what is measured, for instance ``semantic_tips``. case : ``<kind>/<case>``. render : the
    submission's video, whose gate is open. frames : frames of it, and of the reference video. estimates :
    directory of the prepare stage's files (may be absent). results : where the geometry pass has left its
    arrays. checkpoint : identity of the model's files.
    """

    unit: str
    case: str
    render: Path
    frames: int
    estimates: Path
    results: Path
    checkpoint: str = ""
