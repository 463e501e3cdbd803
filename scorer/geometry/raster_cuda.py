"""The rasteriser on CUDA: an adapter to nvdiffrast, imported only when it is used.

It draws the same clip coordinates as the CPU and reads nvdiffrast's buffer back. nvdiffrast orders surfaces
by a 24-bit depth, so surfaces closer to each other than about 1.5e-4·z² metres may be ordered differently
from the CPU; everything else is meant to be the same. Nobody has run this module on a GPU yet: it is tested
against a double that answers exactly the calls made here. nvdiffrast's licence does not allow every use; it
is never installed by us.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.constants import NEAR

MOST_FACES = 2**24 - 1
"""nvdiffrast gives back face + 1 as a float32, which is exact up to 2^24."""


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether PyTorch, a CUDA device and nvdiffrast are there (asked once a process)."""
    if find_spec("nvdiffrast") is None or find_spec("torch") is None:
        return False
    return bool(import_module("torch").cuda.is_available())


@lru_cache(maxsize=8)
def _context(device: str) -> Any:
    """One rasteriser context a device for the life of the process."""
    return import_module("nvdiffrast.torch").RasterizeCudaContext(device=device)


def draw(
    clip: NDArray[np.float32], faces: NDArray[np.int32], height: int, width: int, device: str
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """Depth (H, W), face (H, W) and barycentrics (2, H, W) of clip coordinates (x_c, y_c, w_c) float32 (V,
    3).
    """
    torch = import_module("torch")
    library = import_module("nvdiffrast.torch")
    w = clip[:, 2]
    corners = np.stack([clip[:, 0], clip[:, 1], w - np.float32(2.0 * NEAR), w], axis=1)
    # A corner that is not finite would poison its triangle in ways the library does not define: send it, and
    # with it the triangle, behind the camera.
    lost = np.logical_not(np.isfinite(corners).all(axis=1))
    whole = ~lost[faces].any(axis=1)
    kept = np.flatnonzero(whole).astype(np.int32)
    if not len(kept):
        miss = np.full((height, width), -1, np.int32)
        return np.full((height, width), np.inf, np.float32), miss, np.zeros((2, height, width), np.float32)
    corners[lost] = (0.0, 0.0, -1.0, -1.0)
    positions = torch.from_numpy(corners[None]).to(device)
    triangles = torch.from_numpy(faces[kept]).to(device)
    attribute = torch.from_numpy(np.ascontiguousarray(corners[None, :, 3:])).to(device)
    raw, _ = library.rasterize(
        _context(device), positions, triangles, resolution=[height, width], grad_db=False
    )
    depth, _ = library.interpolate(attribute, raw, triangles)
    buffer = raw.cpu().numpy()[0]
    row = buffer[..., 3].astype(np.int32) - 1
    face = np.where(row >= 0, kept[row], np.int32(-1))
    seen = np.where(row >= 0, depth.cpu().numpy()[0, ..., 0], np.float32(np.inf))
    bary = np.ascontiguousarray(np.moveaxis(buffer[..., :2], -1, 0))
    return np.ascontiguousarray(seen, np.float32), np.ascontiguousarray(face, np.int32), bary
