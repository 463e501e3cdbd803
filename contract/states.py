"""The states of a reading, which of them wins, and the causes stored beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from contract.cases import kind
from contract.metrics import BY_KEY

NOT_APPLICABLE = "not_applicable"
EXCLUDED = "excluded"
ERROR = "error"
UNCOMPUTABLE = "uncomputable"
STATES = (NOT_APPLICABLE, EXCLUDED, ERROR, UNCOMPUTABLE)
"""In order of precedence; a number comes last."""

# Causes of ``error``.
NO_VIDEO = "no_video"
UNDECODABLE_VIDEO = "undecodable_video"
VIDEO_MISMATCH = "video_mismatch"
NO_WORLD = "no_world"
INVALID_WORLD = "invalid_world"
METRIC_FAILURE = "metric_failure"
EMPTY_FIRST_FRAME = "empty_first_frame"
DEGENERATE = "degenerate"
# Causes of ``uncomputable``.
NO_PAIRING = "no_pairing"
REFERENCE_EMPTY = "reference_empty"
SUBMISSION_EMPTY = "submission_empty"
# Cause of ``excluded``.
TRANSPARENT = "transparent"

_EMPTY_MARKS = ("no covered pixel", "no visible geometry")


@dataclass(frozen=True)
class Reading:
    """What goes into ``reward.json`` for one key (a number or a state), and its cause, if any."""

    value: float | str
    cause: str | None = None


def case_state(key: str, case: str) -> Reading | None:
    """The state that the case's name alone decides, or None when the key can be scored on it."""
    metric = BY_KEY[key]
    if kind(case) not in metric.kinds:
        return Reading(NOT_APPLICABLE)
    if case in metric.excluded:
        return Reading(EXCLUDED, TRANSPARENT)
    return None


def failure_cause(text: str) -> str:
    """Cause of an error derived from the joined failure texts of the write."""
    return EMPTY_FIRST_FRAME if any(mark in text for mark in _EMPTY_MARKS) else METRIC_FAILURE


def reading(
    key: str,
    case: str,
    value: float | str | None = None,
    *,
    error: str | None = None,
    vouched: bool = True,
    uncomputable: str = NO_PAIRING,
    failures: str = "",
) -> Reading:
    """Resolve one key by the fixed precedence; the first rule that fires wins.

    Parameters
    ----------
    value : the raw number from the detail (a cosine for the cosine keys), the text ``error``, or None.
    error : cause when the whole write is an error (closed gate, failed metric), else None.
    vouched : whether the metric reported this key at all.
    uncomputable : cause to store if the key turns out uncomputable.
    failures : joined failure texts, from which the cause of a textual ``error`` is derived.
    """
    fixed = case_state(key, case)
    if fixed is not None:
        return fixed
    if error is not None:
        return Reading(ERROR, error)
    if not vouched:
        return Reading(UNCOMPUTABLE, uncomputable)
    if value == ERROR:
        return Reading(ERROR, failure_cause(failures))
    if value is None:
        return Reading(UNCOMPUTABLE, uncomputable)
    number = float(value)
    if not math.isfinite(number):
        return Reading(ERROR, DEGENERATE)
    return Reading((1.0 + number) / 2.0 if BY_KEY[key].cosine else number)
