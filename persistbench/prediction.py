"""A finished case of an inference run: its record, and whether it still holds (spec 70 §4.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from .images import image_files
from .store import read_json, sha256_of, write_json

SCHEMA = 1
RECORD = "case.json"
INPUT = "input"
PREDICTION = "prediction"
CAMERAS = ("input_camera_params.npy", "target_camera_params.npy")


def _files(folder: Path) -> list[Path]:
    images = [path for name in (INPUT, PREDICTION) for path in image_files(folder / name)]
    return images + [folder / name for name in CAMERAS]


def write_record(folder: Path, uid: str) -> None:
    """Write ``case.json`` once all files of the case are there.

    Errors: ``ValueError`` where predictions are not one RGB image of the input's size for each input frame.
    """
    inputs, predictions = image_files(folder / INPUT), image_files(folder / PREDICTION)
    if not inputs or len(inputs) != len(predictions):
        raise ValueError(f"{folder}: {len(predictions)} predicted frames for {len(inputs)} input frames")
    sizes = []
    for source, predicted in zip(inputs, predictions):
        with Image.open(source) as wanted, Image.open(predicted) as image:
            if image.size != wanted.size or image.mode != "RGB":
                raise ValueError(
                    f"{predicted} must be RGB of {wanted.size}, not {image.mode} of {image.size}"
                )
            sizes.append(list(image.size))
    record = {
        "schema_version": SCHEMA,
        "uid": uid,
        "num_frames": len(inputs),
        "sizes_wh": sizes,
        "files": {path.relative_to(folder).as_posix(): sha256_of(path) for path in _files(folder)},
    }
    write_json(folder / RECORD, record)


def fault_of(folder: Path, uid: str) -> str | None:
    """What keeps the case in ``folder`` from being the complete case ``uid``; None when nothing does."""
    try:
        record = read_json(folder / RECORD)
        if not isinstance(record, dict):
            return f"{RECORD} is no object"
        return _fault(folder, uid, record)
    except (OSError, ValueError) as error:
        return str(error)


def _fault(folder: Path, uid: str, record: dict[str, Any]) -> str | None:
    frames, hashes = record.get("num_frames"), record.get("files")
    if record.get("schema_version") != SCHEMA or record.get("uid") != uid:
        return f"{RECORD} is not of case {uid}, schema {SCHEMA}"
    if type(frames) is not int or frames < 1 or not isinstance(hashes, dict):
        return f"{RECORD} states no frames"
    for name in (INPUT, PREDICTION):
        found = len(image_files(folder / name))
        if found != frames:
            return f"{name} has {found} frames, {RECORD} says {frames}"
    there = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    if set(there) != set(hashes):
        return f"the files differ from those that {RECORD} lists"
    for name, path in there.items():
        if sha256_of(path) != hashes[name]:
            return f"{name} has changed since it was written"
    return None


def complete(folder: Path, uid: str) -> bool:
    """Whether the case in ``folder`` is whole: every file is there with the hash on record."""
    return fault_of(folder, uid) is None
