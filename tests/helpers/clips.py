"""Small videos for tests, made with FFmpeg through PyAV or the ffmpeg binary that a PyPI package ships."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from world.video import Image, write_video


def ffmpeg(*arguments: object) -> None:
    """Run ffmpeg quietly, overwriting its output; raises when it fails."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y", *map(str, arguments)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def moving_square(frames: int, height: int = 48, width: int = 64) -> Iterator[Image]:
    """A bright square that crosses a textured, still background."""
    rng = np.random.default_rng(0)
    background = rng.integers(40, 90, (height, width, 3), dtype=np.uint8)
    for index in range(frames):
        image = background.copy()
        left = 2 + index * max(1, (width - 20) // max(frames, 1))
        image[height // 3 : height // 3 + 12, left : left + 12] = (230, 60, 40)
        yield image


def clip(path: Path, frames: int = 12, height: int = 48, width: int = 64, fps: int = 24) -> Path:
    """Write the moving square as H.264."""
    write_video(path, moving_square(frames, height, width), fps)
    return path


def pattern(
    path: Path, *, seconds: float = 2, rate: object = 24, size: str = "64x48", codec: str = "libx264"
) -> Path:
    """FFmpeg's test pattern with a key frame a second."""
    ffmpeg(
        "-f", "lavfi", "-i", f"testsrc=size={size}:rate={rate}:duration={seconds}",
        "-pix_fmt", "yuv420p", "-c:v", codec, "-g", 24, "-movflags", "+faststart", path,
    )  # fmt: skip
    return path
