"""``run.json`` of an inference run: what makes two launches the same run (spec 70 §4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .store import locked, read_json, write_json

FILE = "run.json"
_LOCK = ".manifest.lock"
INFERENCE = "inference"
INFERENCE_SCHEMA = 1
_PROVENANCE = ("package_version", "model")


def inference_identity(manifest: Any) -> dict[str, Any]:
    """What changes predictions: everything but the package's version and the spelling of the model's path.

    The class's name stays in, and its source by its hash.
    """
    if not isinstance(manifest, dict):
        return {}
    kept = {key: value for key, value in manifest.items() if key not in _PROVENANCE}
    kept["class"] = str(manifest.get("model", "")).rpartition(":")[2]
    return kept


def differences(known: Any, wanted: dict[str, Any]) -> list[str]:
    """Keys in which two inference manifests differ as runs."""
    old, new = inference_identity(known), inference_identity(wanted)
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def check(path: Path, wanted: dict[str, Any], *, only: tuple[str, ...] | None = None) -> None:
    """Refuse a launch that is not of the run in ``path``; nothing is written. ``only`` names keys to look at.

    Errors: ``ValueError``.
    """
    if not path.is_file():
        return
    keys = [key for key in differences(read_json(path), wanted) if only is None or key in only]
    if "num_splits" in keys:
        raise ValueError(
            f"Existing run uses a different number of splits: {path} says {read_json(path).get('num_splits')}"
        )
    if keys:
        raise ValueError(
            f"Run configuration differs from {path} in {', '.join(keys)}; "
            "use a different output directory or model name"
        )


def settle(run: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Write the manifest if the run is new, else check it; return what is on disk. Errors: ``ValueError``."""
    with locked(run / _LOCK):
        path = run / FILE
        if not path.is_file():
            write_json(path, wanted)
        check(path, wanted)
        known = read_json(path)
    if not isinstance(known, dict):
        raise ValueError(f"{path} is no manifest of a run")
    return known
