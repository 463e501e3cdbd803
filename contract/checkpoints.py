"""The learned models that scores rest on: where each comes from, at which revision, and what it must hash to.

Protocol 4dcb-1, checkpoints. The weights are files of a local store and are never fetched by a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

HUB = "huggingface"
HTTPS = "https"


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint.

    path : name below the checkpoint's directory. sha256 : of its content; empty when none is published (such
    a file is pinned by the revision alone). size : bytes; None when not published.
    origin : path in the repository when it differs from ``path``.
    """

    path: str
    sha256: str
    size: int | None = None
    origin: str = ""

    @property
    def source(self) -> str:
        """Path inside the repository."""
        return self.origin or self.path


@dataclass(frozen=True)
class Checkpoint:
    """One model's files.

    directory : below the model store. repo, revision : of the hub (empty for ``source`` ``https``).
    files : what is needed, the weights first. gated : whether its owner must grant access.
    licence : name of the licence of the weights. source : ``huggingface`` or ``https``.
    url : of the only file, for ``https``.
    """

    name: str
    directory: str
    repo: str
    revision: str
    files: tuple[CheckpointFile, ...]
    gated: bool
    licence: str
    source: str = HUB
    url: str = ""

    @property
    def weights(self) -> CheckpointFile:
        """The file that holds the weights."""
        return self.files[0]

    @property
    def page(self) -> str:
        """Where people read the licence and, for a gated model, ask for access."""
        return f"https://huggingface.co/{self.repo}" if self.source == HUB else self.url


DINOV3 = "dinov3-vitl16-pretrain-lvd1689m"
TIPSV2 = "tipsv2-l14"
VIDEO_DEPTH_ANYTHING = "video-depth-anything-large"
RAFT = "raft-large"
COTRACKER3 = "cotracker3"
MOGE3 = "moge-3-vitl"
UNI3D = "uni3d-l"

# Of the two transformers models only weights and configuration are taken: the code beside TIPSv2's weights is
# never run, so it is not fetched either.
_CONFIG = CheckpointFile("config.json", "")

_TABLE = (
    Checkpoint(
        DINOV3,
        DINOV3,
        "facebook/dinov3-vitl16-pretrain-lvd1689m",
        "ea8dc2863c51be0a264bab82070e3e8836b02d51",
        (
            CheckpointFile(
                "model.safetensors", "dcb2e45127cccbf1601e5f42fef165eea275c8e5213197e8dcf3f48822718179"
            ),
            _CONFIG,
        ),
        gated=True,
        licence="DINOv3 License",
    ),
    Checkpoint(
        TIPSV2,
        TIPSV2,
        "google/tipsv2-l14",
        "52847a71eb02a3082c370fbcd98cd799687bd4d0",
        (
            CheckpointFile(
                "model.safetensors", "c75707eabca655e641a6c47a59dd26b347290ceadb993b34af184e7f654c5809"
            ),
            _CONFIG,
        ),
        gated=False,
        licence="see the model's page",
    ),
    Checkpoint(
        VIDEO_DEPTH_ANYTHING,
        VIDEO_DEPTH_ANYTHING,
        "depth-anything/Video-Depth-Anything-Large",
        "7aafbcb5c6af0bac741aad2b6471894fb4761afa",
        (
            CheckpointFile(
                "video_depth_anything_vitl.pth",
                "43df27c6b396042ba34ff7b798ab279f64d204d2e86d7a373968f8fa36d0e6fa",
            ),
        ),
        gated=False,
        licence="see the model's page",
    ),
    Checkpoint(
        RAFT,
        RAFT,
        "",
        "",
        (
            CheckpointFile(
                "raft_large_C_T_SKHT_V2.pth",
                "ff5fadd56d26b40647388883af1547351ea17868b765c05b27231e72dd16a322",
                origin="raft_large_C_T_SKHT_V2-ff5fadd5.pth",
            ),
        ),
        gated=False,
        licence="see torchvision",
        source=HTTPS,
        url="https://download.pytorch.org/models/raft_large_C_T_SKHT_V2-ff5fadd5.pth",
    ),
    Checkpoint(
        COTRACKER3,
        COTRACKER3,
        "facebook/cotracker3",
        "bf55ea50d4390e1820a267f131cd6587240fb2c5",
        (
            CheckpointFile(
                "scaled_offline.pth", "2670d4562ed69326dda775a26e54883925cd11b6fc9b24cb7aa9f8078bce7834"
            ),
        ),
        gated=False,
        licence="see the model's page",
    ),
    Checkpoint(
        MOGE3,
        MOGE3,
        "Ruicheng/moge-3-vitl",
        "184008f877d7ad1ad4c2cd2182a9bd1f63d0e5be",
        (CheckpointFile("model.pt", "9b41b7b9f65ad80aab7ad686f5e9cc0d1fd33f1964022618dfbcd52fc1fb7925"),),
        gated=False,
        licence="see the model's page",
    ),
    Checkpoint(
        UNI3D,
        UNI3D,
        "BAAI/Uni3D",
        "3d8233b76aa350d72f6213ecd2123c2026b42355",
        (
            CheckpointFile(
                "model.pt",
                "540a3cafac52c251cbda1844d109bc598f142b4f5a2118db87cd722b01800c20",
                origin="modelzoo/uni3d-l/model.pt",
            ),
        ),
        gated=False,
        licence="see the model's page",
    ),
)

CHECKPOINTS: Mapping[str, Checkpoint] = MappingProxyType({each.name: each for each in _TABLE})

GROUP_MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "flow": (RAFT,),
        "tracks": (COTRACKER3,),
        "moge": (MOGE3,),
        "semantic": (DINOV3, TIPSV2),
        "geophys": (DINOV3,),
        "depth": (VIDEO_DEPTH_ANYTHING,),
    }
)
"""Groups of the prepare stage, in their order, and the models that each runs."""

TYPE_MODELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"semantic": (DINOV3, TIPSV2), "geophys": (DINOV3,), "uni3d": (UNI3D,)}
)
"""Metric types that run a model themselves; every other type reads estimates only."""

GROUP_METRICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "flow": ("flow_distribution",),
        "tracks": ("track2d_dtw",),
        "moge": ("uni3d_moge_scene",),
        "semantic": ("semantic_dinov3", "semantic_tips"),
        "geophys": ("geophys_dinov3",),
        "depth": ("depth_error",),
    }
)
"""Reward keys that rest on what each group of the prepare stage makes."""


def models_of(table: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[str, ...]:
    """Models that those groups or types run, in the table's order, each once; other names need none."""
    wanted = {model for name in names for model in table.get(name, ())}
    return tuple(name for name in CHECKPOINTS if name in wanted)


def path_of(name: str, file: str = "") -> PurePosixPath:
    """Path of a checkpoint's file (the weights unless given) below the model store."""
    checkpoint = CHECKPOINTS[name]
    return PurePosixPath(checkpoint.directory, file or checkpoint.weights.path)
