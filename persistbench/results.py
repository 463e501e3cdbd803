"""Results of cases: checked before anything is averaged or handed in (spec 70 §8.1)."""

from __future__ import annotations

import math
from typing import Any

PROTOCOL = "default-three-paper-v3"
EVALUATION = "evaluation"
EVALUATION_SCHEMA = 3
METRICS = ("object_permanence", "motion_continuity", "appearance_preservation")
GROUPS = ("visible", "invisible")
SCORES = tuple(f"{metric}_{group}" for metric in METRICS for group in GROUPS)
_COSINE_SLACK = 1e-6


def case_scores(result: Any, frames: int | None = None) -> dict[str, float | None]:
    """The six scores of a case, derived again from its frames. frames : what the prediction has, where known.

    Errors: ``ValueError`` saying what does not hold.
    """
    try:
        parts = result["results"]
        metadata = parts["metadata"]
        masks = {group: metadata[f"{group}_mask"] for group in GROUPS}
        start = metadata["track_start_frame_idx"]
        series = {
            metric: (parts[metric]["per_frame"]["score"], parts[metric]["scalars"]) for metric in METRICS
        }
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"Malformed evaluation scores: {error}") from None
    _check_masks(masks, start, frames)
    scores: dict[str, float | None] = {}
    for metric, (values, scalars) in series.items():
        _check_series(metric, values, len(masks["visible"]), start)
        for group in GROUPS:
            chosen = [v for v, inside in zip(values, masks[group]) if inside and v is not None]
            mean = math.fsum(chosen) / len(chosen) if chosen else None
            stated = scalars.get(group, "missing") if isinstance(scalars, dict) else "missing"
            if not same_number(stated, mean):
                raise ValueError(f"Invalid {metric}/{group}: scalar differs from frame scores")
            scores[f"{metric}_{group}"] = stated
    return scores


def same_number(stated: object, mean: float | None) -> bool:
    """Equal to a relative 1e-7 or an absolute 1e-9, or both missing."""
    if mean is None or stated is None:
        return mean is None and stated is None
    return is_number(stated) and math.isclose(stated, mean, rel_tol=1e-7, abs_tol=1e-9)  # type: ignore[arg-type]


def is_number(value: object) -> bool:
    """A finite number that is no boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_masks(masks: dict[str, Any], start: object, frames: int | None) -> None:
    visible, invisible = (masks[group] for group in GROUPS)
    lists = all(isinstance(m, list) and all(isinstance(v, bool) for v in m) for m in (visible, invisible))
    if (
        not lists
        or not visible
        or len(visible) != len(invisible)
        or (frames is not None and len(visible) != frames)
        or any(a and b for a, b in zip(visible, invisible))
        or type(start) is not int
        or not 0 <= start < len(visible)
    ):
        raise ValueError("Invalid visibility masks, frame count, or track start")


def _check_series(metric: str, values: Any, frames: int, start: int) -> None:
    if not isinstance(values, list) or len(values) != frames:
        raise ValueError(f"Invalid {metric} frame-score count")
    low, high = (-1 - _COSINE_SLACK, 1 + _COSINE_SLACK) if metric == METRICS[2] else (0, 1)
    for value in values:
        if value is not None and not (is_number(value) and low <= value <= high):
            raise ValueError(f"Invalid {metric} score: {value}")
    if any(value is not None for value in values[:start]):
        raise ValueError(f"Invalid {metric} scores before track start")


def check_manifest(manifest: Any) -> dict[str, Any]:
    """The manifest of an evaluation run of this protocol. Errors: ``ValueError``."""
    if not isinstance(manifest, dict) or manifest.get("stage") != EVALUATION:
        raise ValueError("run.json is not of an evaluation run")
    if (manifest.get("schema_version"), manifest.get("score_protocol")) != (EVALUATION_SCHEMA, PROTOCOL):
        raise ValueError(
            f"run.json is of schema {manifest.get('schema_version')}, "
            f"protocol {manifest.get('score_protocol')}; "
            f"expected schema {EVALUATION_SCHEMA}, {PROTOCOL}: evaluate again"
        )
    ids, known = manifest.get("case_ids"), manifest.get("prediction_cases")
    if not isinstance(ids, list) or not ids or not all(isinstance(uid, str) for uid in ids):
        raise ValueError("run.json lists no case_ids")
    if len(set(ids)) != len(ids):
        raise ValueError("run.json lists a case twice")
    if not isinstance(known, dict) or set(known) != set(ids):
        raise ValueError("run.json: prediction_cases does not cover exactly the case_ids")
    if not all(isinstance(case, dict) and {"sha256", "num_frames"} <= set(case) for case in known.values()):
        raise ValueError("run.json: prediction_cases lacks sha256 or num_frames")
    return manifest


def checked_scores(result: Any, manifest: dict[str, Any], run_id: str) -> dict[str, float | None]:
    """The six scores of a result that belongs to the run of ``manifest``. Errors: ``ValueError`` naming the
    case.
    """
    uid = result.get("uid") if isinstance(result, dict) else None
    known = manifest["prediction_cases"].get(uid) if isinstance(uid, str) else None
    if known is None:
        raise ValueError(f"Result of an unknown case: {uid!r}")
    wanted = {"score_protocol": PROTOCOL, "evaluation_run_id": run_id, "prediction_sha256": known["sha256"]}
    for key, value in wanted.items():
        if result.get(key) != value:
            raise ValueError(f"Case {uid}: {key} is not that of this run; evaluate it again")
    try:
        return case_scores(result, known["num_frames"])
    except ValueError as error:
        raise ValueError(f"Case {uid}: {error}") from None
