"""``persistbench infer``: run a model over the dataset's cases (spec 70 §1.3, §4)."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from . import manifest, prediction
from .api import BaseModel, ModelInput, ShapePolicy, output_pixels, shape_policy
from .cameras import Cameras, read_cameras, write_cameras
from .images import read_stack
from .index import Dataset, DatasetCase
from .model_loading import importable, load_class, source_hash
from .preprocess import plan_view, write_frames
from .progress import ShardProgress
from .store import identifier, locked, plain, read_json, shard
from .version import __version__

STAGE_FOLDER = "null"
LOGGER = logging.getLogger("persistbench")


@dataclass(frozen=True)
class InferOptions:
    """What ``infer`` was asked for. name : None takes the class's name in lower case."""

    model: str
    output: Path
    name: str | None = None
    num_splits: int = 1
    split_id: int = 0
    device: str = "cuda:0"
    resume: bool = False
    overwrite: bool = False
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """run : the run's directory. failed : uid and message of each case that failed."""

    run: Path
    failed: tuple[tuple[str, str], ...]


def read_model_config(path: Path | None) -> dict[str, Any]:
    """Constructor arguments from a JSON file. Errors: ``OSError``, ``ValueError``."""
    if path is None:
        return {}
    config = read_json(path)
    if not isinstance(config, dict):
        raise ValueError(f"--model-config {path} must hold a JSON object")
    if "device" in config:
        raise ValueError(f"--model-config {path} must not set device; use --device")
    return config


def infer(dataset: Dataset, options: InferOptions) -> Outcome:
    """Predict the cases of one shard. A case that fails is recorded and the others go on.

    Errors: whatever keeps the run as a whole from starting (``ValueError``, ``OSError``, the model's own).
    """
    cases = [dataset.cases[i] for i in shard(len(dataset.cases), options.num_splits, options.split_id)]
    with ending_on_sigterm(), importable(options.model):
        found = load_class(options.model)
        name = identifier(options.name or found.__name__.lower())
        run = options.output.expanduser().resolve() / STAGE_FOLDER / name
        wanted = _manifest(dataset, options, name, found)
        # What can be told without the model comes before gigabytes of weights are loaded.
        manifest.check(run / manifest.FILE, wanted, only=(*wanted, "class"))
        _refuse_existing(run, cases, options)
        run.mkdir(parents=True, exist_ok=True)
        taken = f"shard {options.split_id} of {run} is being worked on by another process"
        with locked(run / f".split-{options.split_id}.lock", held=taken), _logging(run, options.split_id):
            try:
                return _with_model(run, cases, options, found, wanted)
            except Exception:
                LOGGER.exception("the shard stopped")
                raise


def _manifest(dataset: Dataset, options: InferOptions, name: str, found: type[BaseModel]) -> dict[str, Any]:
    return {
        "schema_version": manifest.INFERENCE_SCHEMA,
        "package_version": __version__,
        "stage": manifest.INFERENCE,
        "name": name,
        "model": options.model,
        "model_config": plain(options.config),
        "model_source_sha256": source_hash(found),
        "dataset_id": dataset.dataset_id,
        "case_ids": dataset.uids,
        "num_splits": options.num_splits,
    }


def _refuse_existing(run: Path, cases: list[DatasetCase], options: InferOptions) -> None:
    if options.resume or options.overwrite:
        return
    for case in cases:
        if (run / case.uid).exists():
            raise ValueError(f"{run / case.uid} exists; use --resume or --overwrite")


def _with_model(
    run: Path, cases: list[DatasetCase], options: InferOptions, found: type[BaseModel], wanted: dict[str, Any]
) -> Outcome:
    model = found(device=options.device, **options.config)
    try:
        policy = shape_policy(model.eval_length, model.eval_reso)
        wanted = {**wanted, "preprocessing": policy.record(), **_provenance(model)}
        manifest.settle(run, wanted)
        failed = []
        with ShardProgress(run, options.split_id, options.num_splits, len(cases)) as progress:
            for number, case in enumerate(cases, 1):
                message = _one(run, case, model, policy, options, progress)
                if message is not None:
                    failed.append((case.uid, message))
                _say(f"{case.uid}: {message or 'done'}  ({number}/{len(cases)}, {len(failed)} failed)")
    finally:
        model.close()
    return Outcome(run, tuple(failed))


def _provenance(model: BaseModel) -> dict[str, Any]:
    stated = getattr(model, "provenance", None)
    if stated is None:
        return {}
    try:
        same = json.loads(json.dumps(stated)) == stated
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            "the model's provenance must survive JSON unchanged: text keys, lists, numbers, text"
        )
    return {"model_provenance": stated}


def _one(
    run: Path,
    case: DatasetCase,
    model: BaseModel,
    policy: ShapePolicy,
    options: InferOptions,
    progress: ShardProgress,
) -> str | None:
    """Predict one case unless it is there; what went wrong, or None."""
    folder = run / case.uid
    progress.case(case.uid)
    if options.resume and prediction.complete(folder, case.uid):
        progress.done(skipped=True)
        return None
    begun = time.monotonic()
    try:
        if folder.exists():
            shutil.rmtree(folder)
        predict_case(case, model, policy, folder)
    # The model is the user's code: whatever it raises, this case failed and the next may not.
    except Exception as error:
        LOGGER.exception("case %s failed", case.uid)
        progress.fault(case.uid, error)
        return f"{type(error).__name__}: {error}"
    LOGGER.info("case %s took %.2f s", case.uid, time.monotonic() - begun)
    progress.done()
    return None


def predict_case(case: DatasetCase, model: BaseModel, policy: ShapePolicy, folder: Path) -> None:
    """Make the folder of a case: input, prediction, both cameras, and at last ``case.json``.

    The reference view is neither read nor written here. Errors: ``OSError``, ``ValueError``, ``TypeError``,
    the model's own.
    """
    folder.mkdir()
    plan = plan_view(case.input_frames, policy)
    files = write_frames(plan, folder / prediction.INPUT)
    cameras: list[Cameras] = []
    for source, name in zip((case.input_cameras, case.target_cameras), prediction.CAMERAS):
        cameras.append(plan.cameras(read_cameras(source), source))
        write_cameras(folder / name, cameras[-1])
    frames = read_stack(files)
    shape = frames.shape
    sample = ModelInput(case.uid, frames, cameras[0].mapping(), cameras[1].mapping())
    write_prediction(output_pixels(model.predict(sample), shape), folder / prediction.PREDICTION)
    prediction.write_record(folder, case.uid)


def write_prediction(frames: np.ndarray, folder: Path) -> None:
    """Write uint8 frames (T, H, W, 3) as ``00000.png`` and so on. Errors: ``OSError``."""
    folder.mkdir()
    for index, frame in enumerate(frames):
        Image.fromarray(np.ascontiguousarray(frame)).save(folder / f"{index:05d}.png")


@contextmanager
def _logging(run: Path, split_id: int) -> Iterator[None]:
    (run / "logs").mkdir(exist_ok=True)
    handler = logging.FileHandler(run / "logs" / f"split-{split_id}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        handler.close()


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Inside the block SIGTERM raises ``SystemExit(143)``, so that records are closed; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(line: str) -> None:
    # Progress is for whoever watches; nobody watching is no fault.
    with suppress(OSError, ValueError):
        print(" ".join(line.split()), file=sys.stderr, flush=True)
