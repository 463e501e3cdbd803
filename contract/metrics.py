"""The metric table as data: what is measured, where it applies, which way is better.

Definitions are those of the published benchmark; the implementation of each lies in ``scorer/metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contract.cases import KINDS, REAL, SYNTHETIC, TRANSPARENT

PERCEPTUAL = "Perceptual"
DYNAMICS_2D = "2D Dynamics"
GEOMETRY_25D = "2.5D Geometry"
GEOMETRY_3D = "3D Geometry"
DYNAMICS_3D = "3D Dynamics"
ADDITIONAL = "Additional"
QUALITY = "Geometry Quality"

MAIN_FAMILIES = (PERCEPTUAL, DYNAMICS_2D, GEOMETRY_25D, GEOMETRY_3D, DYNAMICS_3D)
FAMILIES = (*MAIN_FAMILIES, ADDITIONAL, QUALITY)


@dataclass(frozen=True)
class Metric:
    """One reward key.

    key : name in ``reward.json``.
    type : name for ``--type``; several keys can share one.
    detail_key : where ``reward.detail.json`` holds the raw number.
    family, label : how tables group and title it.
    definition : one sentence for readers.
    kinds : case kinds on which it applies.
    low, high : range of the reward.
    higher_is_better : direction.
    cosine : the detail holds a cosine c, the reward is (1 + c) / 2.
    excluded : cases on which it is ``excluded``.
    """

    key: str
    type: str
    detail_key: str
    family: str
    label: str
    definition: str
    kinds: tuple[str, ...] = KINDS
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True
    cosine: bool = False
    excluded: frozenset[str] = frozenset()

    @property
    def worst(self) -> float:
        """What an ``error`` counts as in every aggregate."""
        return self.low if self.higher_is_better else self.high

    def unit(self, value: float) -> float:
        """``value`` on a 0–1 scale where 1 is best; ``depth_error`` (0–2, lower is better) enters as 1 −
        error/2.
        """
        share = (value - self.low) / (self.high - self.low)
        return share if self.higher_is_better else 1.0 - share


METRICS: tuple[Metric, ...] = (
    Metric(
        "dynamic_iou", "dynamic_iou", "dynamic_iou", DYNAMICS_2D, "Dynamic IoU",
        "Mean over all frames of the intersection over union of the moving objects' masks, "
        "with a narrow band along the reference's edge left out.",
        excluded=TRANSPARENT,
    ),
    Metric(
        "scene_3d", "scene_3d", "scene_score", GEOMETRY_3D, "Scene 3D",
        "1 − capped symmetric Chamfer distance between the visible surfaces of frame 0 after registration.",
        kinds=(SYNTHETIC,),
    ),
    Metric(
        "trajectory_dtw", "trajectory", "trajectory_dtw_score", DYNAMICS_3D, "Trajectory DTW",
        "1 − mean warped distance between optimally matched material paths, capped at one reference radius.",
        kinds=(SYNTHETIC,),
    ),
    Metric(
        "emd_step", "dynamics", "emd_step_score", DYNAMICS_3D, "EMD Step",
        "1 − normalised sliced Wasserstein distance between the distributions of step displacements.",
        kinds=(SYNTHETIC,),
    ),
    Metric(
        "occupancy_dtw", "occupancy", "occupancy_dtw_score", ADDITIONAL, "Occupancy DTW",
        "1 − warped sliced Wasserstein distance between the matter of 16 frames, capped at half a radius.",
        kinds=(SYNTHETIC,),
    ),
    Metric(
        "interpenetration", "interpenetration", "interpenetration", QUALITY, "Interpenetration",
        "1 − mean fraction of an object's vertices that lie deep inside another object.",
    ),
    Metric(
        "mesh_watertight", "mesh", "mesh_watertight", QUALITY, "Watertight",
        "Fraction of (object, frame) meshes whose components are closed, or are sheets that enclose nothing.",
    ),
    Metric(
        "mesh_manifold", "mesh", "mesh_manifold", QUALITY, "Manifold",
        "Fraction of (object, frame) meshes in which no component has an edge with more than two faces.",
    ),
    Metric(
        "mesh_clean_faces", "mesh", "mesh_clean_faces", QUALITY, "Clean Faces",
        "Fraction of (object, frame) meshes without degenerate or duplicate faces.",
    ),
    Metric(
        "mesh_no_self_intersection", "mesh", "mesh_no_self_intersection", QUALITY, "No Self-Intersection",
        "Fraction of (object, frame) meshes no component of which intersects itself.",
    ),
    Metric(
        "uni3d_point_scene", "uni3d", "uni3d_point_scene", ADDITIONAL, "Uni3D Point",
        "Cosine of the Uni3D features of the two registered frame-0 clouds.",
        kinds=(SYNTHETIC,), cosine=True,
    ),
    Metric(
        "uni3d_moge_scene", "uni3d", "uni3d_moge_scene", ADDITIONAL, "Uni3D MoGe",
        "Cosine of the Uni3D features of the submission's frame-0 cloud and the MoGe point map of the video.",
        kinds=(REAL,), cosine=True, excluded=TRANSPARENT,
    ),
    Metric(
        "flow_distribution", "flow", "flow_distribution_score", DYNAMICS_2D, "Flow Distribution",
        "1 − normalised sliced Wasserstein distance between analytic and estimated flow vectors.",
        kinds=(REAL,), excluded=TRANSPARENT,
    ),
    Metric(
        "track2d_dtw", "track2d", "track2d_dtw_score", DYNAMICS_2D, "Track 2D DTW",
        "1 − warped distance between analytic and estimated point tracks, capped at 3 % of the diagonal.",
        kinds=(REAL,), excluded=TRANSPARENT,
    ),
    Metric(
        "semantic_dinov3", "semantic", "semantic_dinov3", PERCEPTUAL, "DINOv3",
        "Mean cosine of the DINOv3 features of corresponding frames.", cosine=True,
    ),
    Metric(
        "semantic_tips", "semantic", "semantic_tips", ADDITIONAL, "TIPSv2",
        "Mean cosine of the TIPSv2 features of corresponding frames.", cosine=True,
    ),
    Metric(
        "geophys_dinov3", "geophys", "geophys_dinov3_score", ADDITIONAL, "GeoPhys",
        "Agreement of five statistics of the DINOv3 feature trajectory.",
    ),
    Metric(
        "depth_error", "depth", "depth_error", GEOMETRY_25D, "Depth Error",
        "Mean absolute difference of normalised disparity; a pixel without geometry costs 1.",
        kinds=(REAL,), high=2.0, higher_is_better=False, excluded=TRANSPARENT,
    ),
)  # fmt: skip

BY_KEY: dict[str, Metric] = {metric.key: metric for metric in METRICS}

RENDER_TYPES = frozenset({"semantic", "geophys"})
"""Types that need nothing but ``render.mp4`` of the submission."""
MODEL_UNITS = ("semantic_dinov3", "semantic_tips", "geophys_dinov3", "uni3d")
"""Units that run a model, in their order: each is a pass over all worlds with a worker process of its own."""
REFERENCE_TYPES = frozenset({"scene_3d", "trajectory", "dynamics", "occupancy"})
"""Types that compare with a reference world."""


@dataclass(frozen=True)
class MetricType:
    """What ``--type`` names: keys computed together, and who owns which detail fields.

    prefixes : detail keys that start so belong to this type (longest match wins).
    preparation : steps before the metric, in order.
    with_reference : further steps when the case has a reference world.
    """

    name: str
    prefixes: tuple[str, ...]
    preparation: tuple[str, ...] = ("geometry",)
    with_reference: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return tuple(metric for metric in METRICS if metric.type == self.name)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(metric.key for metric in self.metrics)


_REGISTERED = ("geometry", "reference", "registration")
_SAMPLED = (*_REGISTERED, "sampling")
_PATHS = (*_SAMPLED, "paths")

# In order of execution.
TYPES: tuple[MetricType, ...] = (
    MetricType("dynamic_iou", ("dynamic_",), with_reference=("reference",)),
    MetricType("scene_3d", ("scene_",), _REGISTERED),
    MetricType("trajectory", ("trajectory",), _PATHS),
    MetricType("dynamics", ("emd_", "dynamics_"), _PATHS),
    MetricType("occupancy", ("occupancy",), _SAMPLED),
    MetricType("interpenetration", ("interpenetration",)),
    MetricType("mesh", ("mesh",)),
    MetricType("uni3d", ("uni3d_",), with_reference=("reference", "registration")),
    MetricType("flow", ("flow",)),
    MetricType("track2d", ("track2d",)),
    MetricType("semantic", ("semantic_",), ()),
    MetricType("geophys", ("geophys_dinov",), ()),
    MetricType("depth", ("depth_", "fps"), ()),
)

TYPE_BY_NAME: dict[str, MetricType] = {entry.name: entry for entry in TYPES}
GEOMETRY_TYPES = frozenset(TYPE_BY_NAME) - RENDER_TYPES

CLOUDS = "uni3d_clouds"
"""The half of ``uni3d`` that comes before its model: a unit without keys."""

# What is measured in one go, and is up to date or not as a whole: a type, or one model of a render type.
_UNITS: dict[str, tuple[str, tuple[Metric, ...]]] = {
    **{entry.name: (entry.name, entry.metrics) for entry in TYPES},
    **{metric.key: (metric.type, (metric,)) for metric in METRICS if metric.type in RENDER_TYPES},
    CLOUDS: ("uni3d", ()),
}


def units_of(type_name: str) -> tuple[str, ...]:
    """Units of a type: itself, or its single models (named like their keys) for a render type."""
    kind = TYPE_BY_NAME[type_name]
    return kind.keys if type_name in RENDER_TYPES else (type_name,)


def type_of(unit: str) -> MetricType:
    """The type that a unit, or a type's own name, belongs to."""
    return TYPE_BY_NAME[_UNITS[unit][0]]


def metrics_of(unit: str) -> tuple[Metric, ...]:
    """Metrics of a unit, or of a whole type."""
    return _UNITS[unit][1]


# Owners that are no type of their own: preparation steps and single backbones.
_STEP_PREFIXES: dict[str, tuple[str, ...]] = {
    "registration": ("alignment", "registration_"),
    "geometry": ("geometry_",),
    "reference": ("reference_",),
    "sampling": ("sampling_",),
    "paths": ("paths_",),
    "semantic_dinov3": ("semantic_dinov3",),
    "semantic_tips": ("semantic_tips",),
    "geophys_dinov3": ("geophys_dinov3",),
}
_PREFIXES: tuple[tuple[str, str], ...] = tuple(
    (prefix, owner)
    for owner, prefixes in (
        *((entry.name, (*entry.prefixes, *entry.keys)) for entry in TYPES if entry.name not in RENDER_TYPES),
        *((entry.name, entry.prefixes) for entry in TYPES if entry.name in RENDER_TYPES),
        *_STEP_PREFIXES.items(),
    )
    for prefix in prefixes
)


def owners(key: str) -> frozenset[str]:
    """Types and steps that own a detail or reward key; empty for keys that belong to the entry itself.

    Every owner whose prefix matches competes, those with the longest matching prefix win; a single backbone's
    win is shared with its type, so that ``--type semantic`` replaces what ``semantic_dinov3`` wrote.
    """
    matches = [(len(prefix), owner) for prefix, owner in _PREFIXES if key.startswith(prefix)]
    longest = max((length for length, _ in matches), default=0)
    found = {owner for length, owner in matches if length == longest}
    if found & {"semantic_dinov3", "semantic_tips"}:
        found.add("semantic")
    if any(owner.startswith("geophys_dinov") for owner in found):
        found.add("geophys")
    return frozenset(found)


def keys_of(types: Iterable[str]) -> list[str]:
    """Reward keys of the named types, in table order."""
    wanted = set(types)
    return [metric.key for metric in METRICS if metric.type in wanted]
