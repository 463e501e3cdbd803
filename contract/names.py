"""Trees and file names. Published and fixed: people have runs and results under these names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

# Top-level trees, and their names inside manifests ("runs/real/…").
CASES, DATA, RUNS = "cases", "data", "runs"
MANIFEST_ROOTS = (CASES, DATA, RUNS)

LONGEST_LEVEL = 200
"""Bytes of a level of a tree that is made of a user's words; file systems take 255, staging needs a few."""

# A case.
REFERENCE_VIDEO = "reference.mp4"
WORLD = "world"
ANNOTATION = "annotation"
DYNAMIC_MASK = "dynamic_mask.npz"
DYNAMIC_MASK_KEY = "mask"
ESTIMATES = "estimates"
SANITY = "sanity"

# A run.
WORKSPACE = "workspace"
SOLUTION = "solution"
BUILD_SCRIPT = "build.sh"
LOGS = "logs"
AGENT_LOG = "agent.log"
SESSION = "session"
RUN_RECORD = "run.json"
RESULTS = "results"
VIZ = "viz"
REWARD = "reward.json"
REWARD_DETAIL = "reward.detail.json"

# A world.
CAMERA = "camera.json"
RENDER = "render.mp4"
MESHES = "meshes"
DYNAMICS = "dynamics"
SOLVER = "solver"
SOLVER_MANIFEST = "manifest.json"
LIQUID_IDS_KEY = "liquid_ids"
TRACERS = "tracers.npz"
ARCHIVE_SUFFIX = ".npz"
INTRINSICS_KEY = "intrinsics"
EXTRINSIC_KEY = "extrinsic"
POS_KEY, IDS_KEY, FACES_KEY, TETS_KEY = "pos", "ids", "faces", "tets"

# What an agent is told.
TASK_FILES = ("TASK.md", "world-format.md", "render-settings.md")

# Estimates and results of the stages.
FLOW = "flow.h5"
TRACKS = "tracks.npz"
MOGE = "moge.npz"
SEMANTIC = "semantic_{name}.npz"
GEOPHYS = "geophys_{name}.npz"
DEPTH = "depth.h5"
RASTER_DEPTH = "raster_depth.h5"


def vertices_key(frame: int) -> str:
    """Member name of a mesh archive's vertices at ``frame``."""
    return f"vertices_{frame:04d}"


def faces_key(frame: int) -> str:
    """Member name of a mesh archive's faces at ``frame``."""
    return f"faces_{frame:04d}"


@dataclass(frozen=True)
class AgentPaths:
    """Where an agent finds things; ``CONTAINER`` holds the fixed paths of agent containers."""

    task: PurePosixPath
    video: PurePosixPath
    workspace: PurePosixPath
    home: PurePosixPath

    @property
    def world(self) -> PurePosixPath:
        return self.workspace / WORLD

    @property
    def solution(self) -> PurePosixPath:
        return self.workspace / SOLUTION


CONTAINER = AgentPaths(
    task=PurePosixPath("/task"),
    video=PurePosixPath("/input/reference.mp4"),
    workspace=PurePosixPath("/workspace"),
    home=PurePosixPath("/root"),
)
