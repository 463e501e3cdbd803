"""render.mp4: it must decode to its end, and match the input video where that is at hand."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISREG

from contract.errors import UserError
from contract.names import RENDER
from world.validation.files import describe, mode_of
from world.validation.violation import Violation, reason
from world.video import VideoError, VideoInfo, probe


def check_video(world: Path, render: VideoInfo | None = None) -> tuple[list[Violation], VideoInfo | None]:
    """Check that the render exists and decodes (V1–V3); ``render`` saves decoding it again.

    The field of a failure is ``ffprobe``, the name under which the benchmark has always reported it.
    """
    path = world / RENDER
    if mode_of(path) is None:
        return [
            Violation(RENDER, "path", "is required: the rendered video, as long and large as the input")
        ], None
    if render is not None:
        return [], render
    info, fault = _probe(path)
    if info is None:
        return [Violation(RENDER, "ffprobe", fault)], None
    return [], info


def check_input(render: VideoInfo, video: Path | VideoInfo) -> list[Violation]:
    """Compare the render with the input video: frame count, size and rate must be equal, exactly.

    A mismatch refuses the whole world when it is scored. Raises ``UserError`` when the input cannot be read.
    """
    if isinstance(video, VideoInfo):
        wanted = video
    else:
        info, fault = _probe(video)
        if info is None:
            raise UserError(
                f"the input video {fault}", where=video, next_step="name a readable one with --video"
            )
        wanted = info
    differences = [
        f"{name} {found} instead of {expected}"
        for name, found, expected in (
            ("frame count", render.frames, wanted.frames),
            ("width", render.width, wanted.width),
            ("height", render.height, wanted.height),
            ("frame rate", render.fps, wanted.fps),
        )
        if found != expected
    ]
    if not differences:
        return []
    return [Violation(RENDER, "input", "does not match the input video: " + ", ".join(differences))]


def _probe(path: Path) -> tuple[VideoInfo | None, str]:
    mode = mode_of(path)
    if mode is None:
        return None, "does not exist"
    if not S_ISREG(mode):
        return None, f"is {describe(mode)}, not a regular file"
    try:
        return probe(path), ""
    except (VideoError, OSError, ValueError, MemoryError, OverflowError) as error:
        return None, reason(error)


def video_advice(render: VideoInfo) -> list[Violation]:
    """Properties of the render that are not compared but hint at a wrong export."""
    found: list[Violation] = []
    if render.codec != "h264":
        found.append(Violation(RENDER, "codec", f"is {render.codec}; the benchmark asks for H.264 in MP4"))
    if render.rotation:
        found.append(
            Violation(RENDER, "rotation", f"of {render.rotation}° is set; write the frames upright instead")
        )
    if render.variable:
        found.append(
            Violation(RENDER, "times", "of the frames are unevenly spaced; write a constant frame rate")
        )
    return found
