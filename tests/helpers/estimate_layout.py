"""The estimates' layout as the protocol lists it, and a reader that knows NumPy and h5py only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

LAYOUT: dict[str, dict[str, tuple[str, int]]] = {
    "flow.h5": {
        "flow": ("float16", 4), "valid": ("bool", 3), "stride": ("int64", 0), "model": ("text", 0),
        "iterations": ("int64", 0),
    },
    "tracks.npz": {
        "tracks": ("float32", 3), "visible": ("bool", 2), "queries": ("float32", 2), "on_mask": ("bool", 1),
        "shape": ("int64", 1), "step": ("int64", 0), "stride": ("int64", 0), "model": ("text", 0),
        "tracking_resolution": ("int64", 1),
    },
    "moge.npz": {
        "points": ("float32", 3), "mask": ("bool", 2), "intrinsics": ("float32", 2), "shape": ("int64", 1),
        "model": ("text", 0), "resolution_level": ("int64", 0), "refine_steps": ("int64", 0),
    },
    "semantic_dinov3.npz": {"embeddings": ("float32", 2), "stride": ("int64", 0)},
    "semantic_tips.npz": {"embeddings": ("float32", 2), "stride": ("int64", 0)},
    "geophys_dinov3.npz": {"trajectory": ("float32", 2), "layer": ("int64", 0), "stride": ("int64", 0)},
    "depth.h5": {
        "disparity": ("float16", 3), "shape": ("int64", 1), "stride": ("int64", 0), "fps": ("float64", 0),
    },
}  # fmt: skip
"""File → member → (dtype, rank)."""


def read(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file but the note, its layout checked against the protocol's."""
    found: dict[str, Any] = {}
    if path.suffix == ".h5":
        with h5py.File(path, "r") as file:
            for name, dataset in file.items():
                text = h5py.check_string_dtype(dataset.dtype)
                found[name] = np.array(dataset.asstr()[()]) if text else dataset[()]
                if dataset.ndim >= 3:
                    assert dataset.chunks == (1, *dataset.shape[1:])
                    assert (dataset.compression, dataset.shuffle) == ("lzf", True)
                else:
                    assert dataset.chunks is None
            assert json.loads(file.attrs["provenance"])["fingerprint"].startswith("sha256:")
    else:
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
        assert json.loads(str(found.pop("provenance")))["fingerprint"].startswith("sha256:")
    layout = {
        name: ("text" if value.dtype.kind == "U" else value.dtype.name, value.ndim)
        for name, value in found.items()
    }
    assert layout == LAYOUT[path.name]
    return found
