"""The estimates as data: file, model, who reads it, how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from contract import checkpoints, names
from contract.cases import kind
from contract.metrics import BY_KEY
from scorer.analytic.grid import COUNT
from scorer.estimators.base import Estimator
from scorer.estimators.cotracker3 import CHUNK, LONGEST
from scorer.estimators.dinov3 import GEOPHYS_LAYER
from scorer.estimators.moge3 import REFINE_STEPS, RESOLUTION_LEVEL
from scorer.estimators.raft import ITERATIONS
from scorer.prepare.clip import Clip
from scorer.prepare.output import Output

Writer = Callable[[Any, Clip, Output], None]


@dataclass(frozen=True)
class Estimate:
    """One file of a case.

    group : name for ``--only``. metrics : reward keys that rest on it. members : arrays without which
    readers cannot use it. estimator, writer : dotted ``module:object``, loaded when needed. options : what
    else decides the content. annotated : whether the annotated mask does, too. version : goes up whenever the
    same inputs would give other content.
    """

    group: str
    file: str
    metrics: tuple[str, ...]
    members: tuple[str, ...]
    estimator: str
    writer: str
    options: Mapping[str, Any] = field(default_factory=dict)
    annotated: bool = False
    version: int = 1

    def needed(self, case: str) -> bool:
        """Whether a metric that applies to the case's kind rests on it."""
        return any(kind(case) in BY_KEY[key].kinds for key in self.metrics)

    def model(self) -> Estimator:
        """The estimator, not loaded."""
        found: Estimator = _resolve(self.estimator)
        return found

    def write(self, model: Any, clip: Clip, output: Output) -> None:
        """Run the loaded model on a clip and write the file."""
        _resolve(self.writer)(model, clip, output)


Table = tuple[Estimate, ...]

_ESTIMATORS = "scorer.estimators"
_HERE = "scorer.prepare"
_DINOV3 = f"{_ESTIMATORS}.dinov3:DINOV3"

TABLE: Table = (
    Estimate(
        "flow", names.FLOW, ("flow_distribution",), ("flow", "valid", "stride"),
        f"{_ESTIMATORS}.raft:RAFT", f"{_HERE}.flow:write_flow", {"iterations": ITERATIONS},
    ),
    Estimate(
        "tracks", names.TRACKS, ("track2d_dtw",), ("tracks", "visible", "queries", "on_mask", "stride"),
        f"{_ESTIMATORS}.cotracker3:COTRACKER3", f"{_HERE}.tracks:write_tracks",
        {"queries": COUNT, "chunk": CHUNK, "longest_side": LONGEST}, annotated=True,
    ),
    Estimate(
        "moge", names.MOGE, ("uni3d_moge_scene",), ("points", "mask"),
        f"{_ESTIMATORS}.moge3:MOGE3", f"{_HERE}.moge:write_moge",
        {"resolution_level": RESOLUTION_LEVEL, "refine_steps": REFINE_STEPS},
    ),
    Estimate(
        "semantic", names.SEMANTIC.format(name="dinov3"), ("semantic_dinov3",), ("embeddings", "stride"),
        _DINOV3, f"{_HERE}.features:write_embeddings",
    ),
    Estimate(
        "semantic", names.SEMANTIC.format(name="tips"), ("semantic_tips",), ("embeddings", "stride"),
        f"{_ESTIMATORS}.tipsv2:TIPSV2", f"{_HERE}.features:write_embeddings",
    ),
    Estimate(
        "geophys", names.GEOPHYS.format(name="dinov3"), ("geophys_dinov3",), ("trajectory", "stride"),
        _DINOV3, f"{_HERE}.features:write_trajectory", {"layer": GEOPHYS_LAYER},
    ),
    Estimate(
        "depth", names.DEPTH, ("depth_error",), ("disparity", "shape", "stride", "fps"),
        f"{_ESTIMATORS}.video_depth_anything:VIDEO_DEPTH_ANYTHING", f"{_HERE}.depth:write_depth",
    ),
)  # fmt: skip
"""In order of execution."""

GROUPS = tuple(checkpoints.GROUP_MODELS)


def grouped(table: Table, wanted: Iterable[str]) -> dict[str, list[Estimate]]:
    """Estimates of the wanted groups, in the fixed order of groups."""
    chosen = set(wanted)
    return {name: [each for each in table if each.group == name] for name in GROUPS if name in chosen}


def _resolve(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    return getattr(import_module(module), name)
