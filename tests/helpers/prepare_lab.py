"""A small tree of cases and models that are none, to try the prepare stage on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clips import clip

from contract.checkpoints import CHECKPOINTS, GROUP_MODELS
from scorer.prepare import run
from scorer.prepare.__main__ import main
from scorer.prepare.table import TABLE, Table

WIDTH = 6
"""Numbers in a row of features."""


def note(text: str) -> None:
    """Leave a line in the log, and do what the test asks for at this point."""
    directory = Path(os.environ["PREPARE_LAB"])
    with (directory / "calls.log").open("a") as log:
        log.write(text + "\n")
    slow = directory / "slow"
    if slow.exists() and slow.read_text() in text:
        (directory / "reached").touch()
        time.sleep(600)
    deadly = directory / "deadly"
    if deadly.exists() and deadly.read_text() in text:
        os.kill(os.getpid(), signal.SIGKILL)
    faults = directory / "faults.json"
    for where, error in (json.loads(faults.read_text()) if faults.exists() else {}).items():
        if where in text:
            name, _, message = error.partition(":")
            raise getattr(__import__("builtins"), name)(message)


@dataclass(frozen=True)
class FakeModel:
    """A model that loads nothing; what it returns is worked out from the frames in the plainest way."""

    name: str
    directory: str
    requires: tuple[str, ...] = ()

    def load(self, device: Any, root: Path) -> FakeModel:
        note(f"load {self.name} on {device}")
        return self

    def flow(self, frames: np.ndarray) -> np.ndarray:
        note(f"{self.name} flow {len(frames)}")
        red = frames[..., 0].astype(np.float32)
        return np.stack([red[1:] - red[:-1], red[1:]], axis=-1) / 8

    def track(self, frames: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        note(f"{self.name} track {frames.shape} {frames.dtype}")
        steps = np.arange(len(frames), dtype=np.float32)
        tracks = queries[:, None, 1:] + steps[None, :, None]
        return tracks, tracks[..., 0] < frames.shape[2]

    def points(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        note(f"{self.name} points {image.shape}")
        points = image.astype(np.float32) / 255
        return points, points[..., 0] > 0.3, np.eye(3, dtype=np.float32)

    def embed(self, frames: np.ndarray) -> np.ndarray:
        note(f"{self.name} embed {len(frames)}")
        return frames.reshape(len(frames), -1)[:, :WIDTH].astype(np.float32) + len(self.name)

    def patches(self, frames: np.ndarray, layer: int | None = None, size: int | None = None) -> np.ndarray:
        note(f"{self.name} patches {len(frames)} {layer}")
        cells = frames[:, :4, :4, :1].astype(np.float32)
        return np.concatenate([cells * (layer or 0), cells + 1], axis=-1)

    def disparity(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for index, frame in enumerate(frames):
            note(f"{self.name} disparity {index}")
            yield self.edit(frame[::4, ::4, 0].astype(np.float32) + 1)

    def edit(self, disparity: np.ndarray) -> np.ndarray:
        return disparity


FLOW = FakeModel("raft-large", "raft-large")
TRACKS = FakeModel("cotracker3-offline", "cotracker3")
MOGE = FakeModel("moge-3-vitl", "moge-3-vitl")
DINOV3 = FakeModel("dinov3", "dinov3-vitl16-pretrain-lvd1689m")
TIPS = FakeModel("tips", "tipsv2-l14")
DEPTH = FakeModel("video-depth-anything-large", "video-depth-anything-large")
_NAMES = ("FLOW", "TRACKS", "MOGE", "DINOV3", "TIPS", "DINOV3", "DEPTH")

FAKE_TABLE: Table = tuple(
    replace(each, estimator=f"prepare_lab:{name}") for each, name in zip(TABLE, _NAMES, strict=True)
)
"""The stage's own table, with models that need no checkpoint."""


@dataclass(frozen=True)
class Cpu:
    """As much of PyTorch's device as the stage looks at."""

    type: str = "cpu"

    def __str__(self) -> str:
        return self.type


def without_torch() -> None:
    """Let this process of the stage name the CPU without PyTorch, which takes longer than all the rest."""
    pick = run.pick_device
    run.pick_device = lambda name: Cpu() if name == "cpu" else pick(name)  # type: ignore[assignment,return-value]


@dataclass
class PrepareLab:
    """Trees below ``root`` and a store of checkpoints whose files hold a few bytes."""

    root: Path
    cases: list[str] = field(default_factory=list)
    real_models: bool = False

    def __post_init__(self) -> None:
        for name in ("cases", "data", "checkpoints"):
            (self.root / name).mkdir(parents=True)
        for name in dict.fromkeys(name for names in GROUP_MODELS.values() for name in names):
            for file in CHECKPOINTS[name].files:
                path = self.root / "checkpoints" / name / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"weights of {name}")

    def add_case(self, name: str, frames: int = 5, height: int = 40, width: int = 56, **more: Any) -> Path:
        """A case with a small video; returns its estimates directory, which is not made."""
        video = self.video(name)
        video.parent.mkdir(parents=True)
        clip(video, frames, height, width, **more)
        self.cases.append(name)
        return self.estimates(name)

    def add_mask(self, name: str, mask: np.ndarray) -> Path:
        path = self.root / "data" / name / "annotation" / "dynamic_mask.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, mask=mask)
        return path

    def video(self, name: str) -> Path:
        return self.root / "cases" / name / "reference.mp4"

    def estimates(self, name: str) -> Path:
        return self.root / "data" / name / "estimates"

    def files(self, name: str) -> list[str]:
        """What the estimates directory holds, besides the lock."""
        directory = self.estimates(name)
        return sorted(p.name for p in directory.iterdir() if p.name != ".lock") if directory.exists() else []

    @property
    def calls(self) -> list[str]:
        log = self.root / "calls.log"
        return log.read_text().splitlines() if log.exists() else []

    def forget_calls(self) -> None:
        (self.root / "calls.log").unlink(missing_ok=True)

    def fail(self, **faults: str) -> None:
        """Raise ``Type:message`` where a line of the log would contain the key (``_`` stands for a space)."""
        (self.root / "faults.json").write_text(
            json.dumps({where.replace("_", " "): error for where, error in faults.items()})
        )

    def hang_at(self, text: str | None) -> None:
        """Hang where a line of the log would contain ``text``."""
        for name in ("slow", "reached"):
            (self.root / name).unlink(missing_ok=True)
        if text is not None:
            (self.root / "slow").write_text(text)

    def die_at(self, text: str | None) -> None:
        """End the process, as a library that crashes does, where a line of the log would contain ``text``."""
        (self.root / "deadly").unlink(missing_ok=True)
        if text is not None:
            (self.root / "deadly").write_text(text)

    @property
    def hanging(self) -> bool:
        return (self.root / "reached").exists()

    def arguments(self, *flags: str) -> list[str]:
        manifest = self.root / "manifest.json"
        manifest.write_text(json.dumps([{"case": name} for name in self.cases]))
        roots = [
            part for name in ("cases", "data", "checkpoints") for part in (f"--{name}", str(self.root / name))
        ]
        return ["--manifest", str(manifest), *roots, *flags]

    def command(self, *flags: str) -> list[str]:
        if self.real_models:
            return [sys.executable, "-m", "scorer.prepare", *self.arguments(*flags)]
        code = (
            "import sys; from contract.errors import run_program; from scorer.prepare.__main__ import main; "
            "from prepare_lab import FAKE_TABLE, without_torch; without_torch(); "
            "run_program(lambda: main(sys.argv[1:], FAKE_TABLE))"
        )
        return [sys.executable, "-c", code, *self.arguments(*flags)]

    @property
    def env(self) -> dict[str, str]:
        here = Path(__file__).parent
        path = os.pathsep.join([str(here), str(here.parents[1])])
        return {
            **os.environ,
            "PYTHONPATH": path,
            "PREPARE_LAB": str(self.root),
            "FOURDCB_UNVERIFIED_CHECKPOINTS": "1",
            "OMP_NUM_THREADS": "1",  # on a busy machine several mostly spin
        }

    def here(self, *flags: str, table: Table = FAKE_TABLE) -> int:
        """Run the stage in this process and return its exit status."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = [signal.getsignal(number) for number in numbers]
        with pytest.MonkeyPatch.context() as patch:
            for name in ("PREPARE_LAB", "FOURDCB_UNVERIFIED_CHECKPOINTS"):
                patch.setenv(name, self.env[name])
            try:
                return main(self.arguments("--device", "cpu", *flags), table)
            finally:
                for number, handler in zip(numbers, handlers, strict=True):
                    signal.signal(number, handler)

    def start(self, *flags: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*flags), env=self.env, stdout=pipe, stderr=pipe, text=True)

    def prepare(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run the stage to its end; a traceback fails the test."""
        done = subprocess.run(
            self.command("--device", "cpu", *flags),
            env=self.env, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done
