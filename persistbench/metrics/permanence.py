"""Object permanence: which frames the judge is asked about, and the score of each frame (spec 70 §7.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .series import Series, group_mean

BATCH = 16
Ask = Callable[[list[int]], dict[int, bool]]


@dataclass(frozen=True)
class Labels:
    """values : a label for each frame from the start on. sampled : frames asked about or without a mask."""

    values: dict[int, bool]
    sampled: tuple[int, ...]


class ReferenceMaskEmpty(ValueError):
    """The judge was to be shown a reference object that is not there: the case has no permanence."""


def tag(frame: int) -> str:
    """The name that a frame has before the judge."""
    return f"F{frame:04d}"


def pick(candidates: Sequence[int], count: int = BATCH) -> list[int]:
    """Up to ``count`` of an ordered list, spread evenly, both ends included; all when ``count`` is 0 or
    less.
    """
    total = len(candidates)
    if count <= 0 or count >= total:
        return list(candidates)
    if count == 1:
        return [candidates[total // 2]]
    positions: list[int] = []
    for k in range(count):
        even = round(k * (total - 1) / (count - 1))
        least = positions[-1] + 1 if positions else 0
        positions.append(min(max(even, least), total - 1 - (count - k - 1)))
    return [candidates[p] for p in positions]


def judge_labels(predicted: np.ndarray, reference: np.ndarray, start: int, ask: Ask) -> Labels:
    """Whether the object is there, for each frame from ``start`` on; most frames are never asked about.

    predicted, reference : boolean (T, H, W). A frame without a predicted mask is False unasked. Where two
    neighbouring labels agree, what lies between them is taken to agree; where they differ, more frames
    between are asked about. Errors: :class:`ReferenceMaskEmpty`; whatever ``ask`` raises.
    """
    there, known = predicted.any((1, 2)), reference.any((1, 2))
    frames = range(start, len(predicted))
    labels = {frame: False for frame in frames if not there[frame]}
    sampled = set(labels)
    _need_reference(list(labels), known)

    def request(batch: list[int]) -> None:
        shown = next((i for i, frame in enumerate(batch) if not known[frame]), len(batch))
        if shown:
            labels.update(ask(batch[:shown]))
            sampled.update(batch[:shown])
        _need_reference(batch[shown:], known)

    first = sorted({*pick(frames), start, len(predicted) - 1} - set(labels))
    if first:
        request(first)
    while True:
        _fill(labels)
        asked = _between(labels)
        if not asked:
            return Labels(labels, tuple(sorted(sampled)))
        request(asked)


def _need_reference(batch: list[int], known: np.ndarray) -> None:
    for frame in batch:
        if not known[frame]:
            raise ReferenceMaskEmpty(f"Reference mask is empty at frame {frame}")


def _fill(labels: dict[int, bool]) -> None:
    ordered = sorted(labels)
    for low, high in zip(ordered, ordered[1:]):
        if labels[low] == labels[high]:
            labels.update(dict.fromkeys(range(low + 1, high), labels[low]))


def _between(labels: dict[int, bool]) -> list[int]:
    """What is asked next: frames between neighbours that disagree. What is unlabelled has not been asked
    yet.
    """
    ordered = sorted(labels)
    return [frame for low, high in zip(ordered, ordered[1:]) for frame in pick(range(low + 1, high))]


@dataclass(frozen=True)
class Permanence:
    """Series of T frames: tracker availability, the judge's labels, and both at once (the score)."""

    tracked: list[float | None]
    judged: list[float | None]
    scores: list[float | None]
    labels: Labels

    def metadata(self) -> dict[str, Any]:
        """The part of ``result.json`` that says what was labelled."""
        values = self.labels.values
        return {
            "sampled_frame_indices": list(self.labels.sampled),
            "sampled_frame_tags": [tag(frame) for frame in self.labels.sampled],
            "visible_tags": [tag(frame) for frame in sorted(values) if values[frame]],
            "not_visible_tags": [tag(frame) for frame in sorted(values) if not values[frame]],
        }

    def extras(self, visible: np.ndarray, invisible: np.ndarray, start: int) -> dict[str, float | None]:
        """Shares that explain a score and are no part of it: tracked, judged there, both."""
        everything = np.ones(len(self.scores), bool)
        names = (
            ("tracking_ratio", self.tracked),
            ("vlm_permanence_visible_ratio", self.judged),
            ("bitwise_and_exist_ratio", self.scores),
        )
        result: dict[str, float | None] = {}
        for name, values in names:
            result[name] = group_mean(values, everything, start)
            result[f"{name}_visible"] = group_mean(values, visible, start)
            result[f"{name}_invisible"] = group_mean(values, invisible, start)
        result["vlm_permanence_visible_count"] = _total(self.judged)
        return result


def _total(values: Series) -> float | None:
    there = [value for value in values if value is not None]
    return float(sum(there)) if there else None


def object_permanence(frames: int, start: int, valid: frozenset[int], labels: Labels | None) -> Permanence:
    """The score of each frame: tracked and judged to be there. ``labels`` None: the case has no
    permanence.
    """
    tracked = [float(frame in valid) if frame >= start else None for frame in range(frames)]
    labels = labels or Labels({}, ())
    known = labels.values
    judged = [float(known[frame]) if frame in known else None for frame in range(frames)]
    scores = [None if a is None or b is None else min(a, b) for a, b in zip(tracked, judged)]
    return Permanence(tracked, judged, scores, labels)
