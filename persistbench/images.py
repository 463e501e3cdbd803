"""Image files of a folder, in the order that frames have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg")


def image_files(folder: Path) -> list[Path]:
    """Image files of ``folder`` sorted by name, which is frame order. Errors: ``OSError``."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())


def frames_of(folder: Path) -> list[Path]:
    """As :func:`image_files`, and at least one. Errors: ``FileNotFoundError``."""
    files = image_files(folder) if folder.is_dir() else []
    if not files:
        raise FileNotFoundError(f"No frames in {folder}")
    return files


def open_rgb(path: Path) -> Image.Image:
    """A decoded RGB image. Errors: ``ValueError`` naming the file."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not a readable image: {error}") from None


def read_stack(files: list[Path]) -> np.ndarray:
    """Decode frames of one size into float32 (T, H, W, 3) in [0, 1].

    Errors: ``ValueError`` naming the first file whose size differs from that of the first.
    """
    first = np.asarray(open_rgb(files[0]))
    stack = np.empty((len(files), *first.shape), np.float32)
    for index, path in enumerate(files):
        pixels = first if index == 0 else np.asarray(open_rgb(path))
        if pixels.shape != first.shape:
            height, width = pixels.shape[:2]
            raise ValueError(
                f"{path} is {width} x {height}; the first frame is {first.shape[1]} x {first.shape[0]}"
            )
        np.divide(pixels, np.float32(255), out=stack[index])
    return stack
