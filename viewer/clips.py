"""Facts of a video that its header tells: enough for a clock, without decoding a frame."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from viewer.trees import open_file

DEFAULT_FPS = 24.0


def clip(root: Path, parts: tuple[str, ...]) -> dict[str, Any]:
    """``frames``, ``fps``, ``width``, ``height``, ``seconds``, ``codec``, ``bytes``; or ``problem``.

    Raises ``Absent``.
    """
    handle = open_file(root, parts)
    try:
        status = os.fstat(handle)
        return dict(_header(str(root.joinpath(*parts)), status.st_mtime_ns, status.st_size, status.st_ino))
    finally:
        os.close(handle)


@lru_cache(maxsize=4_096)
def _header(path: str, mtime_ns: int, size: int, inode: int) -> tuple[tuple[str, Any], ...]:
    import av

    try:
        with av.open(path) as container:
            if not container.streams.video:
                return (("problem", "holds no video stream"), ("bytes", size))
            stream = container.streams.video[0]
            rate = float(stream.average_rate or stream.base_rate or DEFAULT_FPS)
            seconds = float(stream.duration * stream.time_base) if stream.duration else 0.0
            if not seconds and container.duration:
                seconds = container.duration / 1e6
            frames = stream.frames or round(seconds * rate)
            found = {
                "frames": frames,
                "fps": rate,
                "width": stream.codec_context.width,
                "height": stream.codec_context.height,
                "seconds": seconds or frames / rate,
                "codec": stream.codec_context.name,
                "bytes": size,
            }
            return tuple(found.items())
    except (av.FFmpegError, OSError, ValueError, ZeroDivisionError) as error:
        return (("problem", f"cannot be read as a video: {error.__class__.__name__}"), ("bytes", size))
