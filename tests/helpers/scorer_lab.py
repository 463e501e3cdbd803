"""A small tree of cases and runs, with metrics that do what a test asks, to try the scorer's process on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.checkpoint_store import UNVERIFIED
from contract.checkpoints import CHECKPOINTS, TIPSV2, TYPE_MODELS
from contract.metrics import TYPE_BY_NAME, metrics_of, type_of, units_of
from scorer.arrays import GROUPS, UNIT_GROUPS
from scorer.digest import ESTIMATES
from scorer.registry import model_key

CASE = "synthetic/box"
RUN = f"runs/{CASE}/toy-model-high/1"

_METRIC = """
import errno, os, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
from scorer.metrics.base import Measurement

def measure(scene):
    with open({log!r}, "a") as log:
        log.write({name!r} + "\\n")
    fine = Measurement({{{key!r}: 0.5}}, {{{group!r}: {{"values": np.arange(3)}}}})
{body}
"""

_MODEL = """
import errno, os, signal, sys, time
from pathlib import Path
import numpy as np
from contract.names import SEMANTIC
from scorer.metrics.base import Measurement

def log(word):
    with open({log!r}, "a") as log:
        log.write(word + "\\n")

class Estimator:
    name, directory, requires = "toy", {directory!r}, {requires!r}
    def load(self, device, root):
        log("load:" + {unit!r})
{load}

ESTIMATOR = Estimator()

def measure(subject, model):
    log({unit!r})
    fine = Measurement({{{key!r}: 0.5}}, {{{group!r}: {{"values": np.arange(3)}}}})
{body}
"""
_TORCH = """
# Stands in for PyTorch, which takes seconds to load: no CUDA, and the error of a device without memory.
class cuda:
    is_available = is_initialized = staticmethod(lambda: False)
device = str
class OutOfMemoryError(RuntimeError):
    pass
"""
_MODELS = """
from importlib import import_module
import numpy as np
from scorer.metrics.base import Measurement

def clouds(scene):
    from lab_uni3d import log
    log("clouds")
    return Measurement({}, {"uni3d_clouds": {"submission_scene": np.zeros((4, 3))}})

def measure(subject, model):
    return import_module("lab_" + subject.unit).measure(subject, model)
"""


@dataclass
class Lab:
    """Trees below ``root``: one case, any number of runs that copy ``world``; the test writes the metrics."""

    root: Path
    world: Path
    registry: dict[str, str] = field(default_factory=dict)
    entries: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("cases", "data", "runs", "metrics"):
            (self.root / name).mkdir(parents=True)
        self.add_case(CASE)

    def add_case(self, case: str) -> None:
        video = self.root / "cases" / case / "reference.mp4"
        video.parent.mkdir(parents=True)
        shutil.copy(self.world / "render.mp4", video)

    def add_run(self, run: str = RUN, case: str = CASE) -> Path:
        """Copy the world and its solution to a run; returns the run's directory."""
        out = self.root / run
        shutil.copytree(self.world.parent, out / "workspace")
        self.entries.append({"case": case, "world": f"{run}/workspace/world", "out": run})
        return out

    def metric(self, name: str, body: str = "return fine") -> None:
        """Register a metric of type ``name`` that ends with ``body``; ``fine`` is a good measurement."""
        source = _METRIC.format(
            log=str(self.log), name=name, key=TYPE_BY_NAME[name].metrics[0].detail_key, group=GROUPS[name][0],
            body=textwrap.indent(textwrap.dedent(body), "    "),
        )  # fmt: skip
        (self.root / "metrics" / f"lab_{name}.py").write_text(source)
        self.registry[name] = f"lab_{name}"

    def model(
        self,
        unit: str,
        body: str = "return fine",
        load: str = "return None",
        requires: tuple[str, ...] = (),
        *,
        estimate: bool = True,
    ) -> None:
        """Register a unit with a model whose loading ends with ``load`` and its measuring with ``body``.

        estimate : put a file in place of the case's estimate.
        """
        kind = type_of(unit).name
        directory = TIPSV2 if unit == "semantic_tips" else TYPE_MODELS[kind][0]
        (self.root / "metrics" / "torch.py").write_text(_TORCH)
        (self.root / "metrics" / f"lab_{unit}.py").write_text(
            _MODEL.format(
                log=str(self.log), unit=unit, directory=directory, requires=requires,
                key=metrics_of(unit)[0].detail_key, group=UNIT_GROUPS[unit][-1],
                load=textwrap.indent(textwrap.dedent(load), "        "),
                body=textwrap.indent(textwrap.dedent(body), "    "),
            )
        )  # fmt: skip
        (self.root / "metrics" / "lab_models.py").write_text(_MODELS)
        self.registry[kind] = "lab_models"
        for other in units_of(kind):  # a type is offered as a whole
            self.registry.setdefault(model_key(other), f"lab_{unit}.ESTIMATOR")
        self.registry[model_key(unit)] = f"lab_{unit}.ESTIMATOR"
        self.add_checkpoint(directory)
        if estimate and unit in ESTIMATES:
            for case in {CASE, *(entry["case"] for entry in self.entries)}:
                for file in ESTIMATES[unit]:
                    path = self.root / "data" / case / "estimates" / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(b"estimate")

    def add_checkpoint(self, name: str, content: bytes = b"weights") -> None:
        """Files where the checkpoint's are expected; their hashes are not the published ones."""
        for file in CHECKPOINTS[name].files:
            path = self.store / CHECKPOINTS[name].directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @property
    def store(self) -> Path:
        """The model store."""
        return self.root / "checkpoints"

    @property
    def log(self) -> Path:
        return self.root / "calls.log"

    @property
    def calls(self) -> list[str]:
        """Names of the metrics that ran, in order."""
        return self.log.read_text().split() if self.log.exists() else []

    def command(self, *flags: str) -> list[str]:
        """Command line of a scorer on this tree with the registered metrics."""
        manifest = self.root / "manifest.json"
        manifest.write_text(json.dumps(self.entries))
        code = (
            "import json, sys; from contract.errors import run_program; from scorer.__main__ import main; "
            "run_program(lambda: main(sys.argv[2:], json.loads(sys.argv[1])))"
        )
        roots = [part for name in ("cases", "data", "runs") for part in (f"--{name}", str(self.root / name))]
        if any(key.endswith(" model") for key in self.registry):
            roots += ["--checkpoints", str(self.store)]
        arguments = ["--manifest", str(manifest), *roots, *flags]
        return [sys.executable, "-c", code, json.dumps(self.registry), *arguments]

    @property
    def env(self) -> dict[str, str]:
        repository = str(Path(__file__).parents[2])
        path = os.pathsep.join([str(self.root / "metrics"), repository])
        return {**os.environ, "PYTHONPATH": path, UNVERIFIED: "1"}

    def start(self, *flags: str) -> subprocess.Popen[str]:
        """Start a scorer that heeds Ctrl-C, also where tests run in the background; its output is piped."""
        pipe = subprocess.PIPE
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored is inherited
        try:
            return subprocess.Popen(self.command(*flags), env=self.env, stdout=pipe, stderr=pipe, text=True)
        finally:
            signal.signal(signal.SIGINT, before)

    def score(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run a scorer to its end."""
        done = subprocess.run(
            self.command(*flags), env=self.env, capture_output=True, text=True, timeout=300, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def reward(self, run: str = RUN) -> dict[str, Any]:
        return strict_json(self.root / run / "results" / "reward.json")

    def detail(self, run: str = RUN) -> dict[str, Any]:
        return strict_json(self.root / run / "results" / "reward.detail.json")


def strict_json(path: Path) -> Any:
    """Parse a file that must be strict JSON: no NaN and no Infinity."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{path} holds {token}")

    return json.loads(path.read_text(), parse_constant=refuse)


def eventually(condition: Callable[[], object], seconds: float = 30) -> bool:
    """Whether the condition came true; waits for it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
