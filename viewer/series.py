"""Readings over time: what the scorer left per frame, with the frames they belong to stated, not guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contract.names import RESULTS
from viewer.readjson import number
from viewer.trees import Absent, open_file
from world.npz import Archive, ArchiveError

LONGEST = 10_000
_LARGEST_MASK = 512 << 20
_LABELS = {
    "depth_per_frame": ("Depth error", False),
    "semantic_dinov3": ("DINOv3 cosine", True),
    "semantic_tips": ("TIPSv2 cosine", True),
    "mesh_per_frame": ("Meshes without any fault", True),
}
_STRIDES = {"depth_per_frame": "depth_stride", "semantic_per_frame": "semantic_stride"}


def read_series(root: Path, parts: tuple[str, ...], detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every reading over time of a run: ``key``, ``label``, ``better`` (up or down), ``frames``, ``values``.

    ``values[i]`` belongs to frame ``frames[i]`` and is null where there is no reading.
    """
    found = _from_detail(detail)
    for read in (_iou, _buried):
        try:
            entry = read(root, parts)
        except (Absent, ArchiveError, ValueError):
            continue
        if entry:
            found.append(entry)
    return found


def _entry(key: str, label: str, up: bool, frames: Sequence[int], values: Sequence[Any]) -> dict[str, Any]:
    rounded = [None if value is None else round(float(value), 6) for value in values]
    return {
        "key": key,
        "label": label,
        "better": "up" if up else "down",
        "frames": list(frames),
        "values": rounded,
    }


def _from_detail(detail: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for key, value in sorted(detail.items()):
        if not key.endswith("_per_frame"):
            continue
        members = value.items() if isinstance(value, dict) else [(key, value)]
        stride = number(detail.get(_STRIDES.get(key, key.replace("_per_frame", "_stride"))))
        step = int(stride) if stride and stride >= 1 else 1
        for name, values in sorted(members):
            if isinstance(values, list) and 0 < len(values) <= LONGEST:
                label, up = _LABELS.get(name, (name.replace("_", " "), True))
                plain = [number(item) if not isinstance(item, dict | list) else None for item in values]
                if any(item is not None for item in plain):
                    found.append(_entry(name, label, up, range(0, len(plain) * step, step), plain))
    return found


def _iou(root: Path, parts: tuple[str, ...]) -> dict[str, Any] | None:
    """Dynamic IoU of each frame from the stored masks: packed bits along the width, the band left out."""
    with _archive(root, (*parts, RESULTS, "dynamic.npz")) as archive:
        if not {"gt", "pred", "band"} <= set(archive.names) or archive.header("gt").nbytes > _LARGEST_MASK:
            return None
        count = archive.header("gt").shape[0]
        values: list[float | None] = []
        for frame in range(min(count, LONGEST)):
            gt, pred, band = (archive.rows(name, frame, frame + 1) for name in ("gt", "pred", "band"))
            either = np.bitwise_count((gt | pred) & ~band).sum()
            both = np.bitwise_count(gt & pred & ~band).sum()
            values.append(float(both / either) if either else None)
        return _entry("dynamic_iou", "Dynamic IoU", True, range(len(values)), values)


def _buried(root: Path, parts: tuple[str, ...]) -> dict[str, Any] | None:
    """Mean buried share of the objects of each frame."""
    with _archive(root, (*parts, RESULTS, "interpenetration.npz")) as archive:
        buried, counts = archive.read("buried"), archive.read("components_per_frame")
        if buried.ndim != 1 or counts.ndim != 1 or int(counts.sum()) != len(buried) or len(counts) > LONGEST:
            return None
        ends = np.cumsum(counts)
        means = [
            float(buried[end - count : end].mean()) if count else None
            for end, count in zip(ends, counts, strict=True)
        ]
        return _entry("buried", "Buried share of vertices", False, range(len(means)), means)


def _archive(root: Path, parts: tuple[str, ...]) -> Archive:
    handle = open_file(root, parts)
    # The archive reader opens by path; this open has shown that no level of it is a link.
    os.close(handle)
    return Archive.open(root.joinpath(*parts))
