"""The two gates that a world passes before any metric looks at it. Runs inside a worker."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from contract import names
from contract.constants import DETAIL_LIMIT
from contract.states import INVALID_WORLD, NO_VIDEO, NO_WORLD, UNDECODABLE_VIDEO, VIDEO_MISMATCH
from scorer.messages import GateRecord, ReferenceFault
from world.validation import check_world
from world.video import VideoError, VideoInfo, probe

Shape = tuple[int, int, int, Fraction]
"""Frames, height, width, frame rate of a video."""


def video_gate(render: Path, reference: Shape) -> tuple[GateRecord, VideoInfo | None]:
    """Gate of ``render.mp4`` against the reference video's shape, compared without any tolerance.

    Causes in order: ``no_video`` (no regular file), ``undecodable_video``, ``video_mismatch``. The facts of
    the video come back when it could be decoded.
    """
    if not render.is_file():
        return GateRecord(NO_VIDEO, (f"missing {render.name}",)), None
    try:
        info = probe(render)
    except VideoError as error:
        return GateRecord(UNDECODABLE_VIDEO, (str(error)[:DETAIL_LIMIT],)), None
    shape = _shape(info)
    if shape != reference:
        text = f"{render.name} is {_words(shape)}, {names.REFERENCE_VIDEO} is {_words(reference)}"
        return GateRecord(VIDEO_MISMATCH, (text,)), info
    return GateRecord(), info


def world_gate(world: Path, build_script: Path | None, video: VideoInfo) -> GateRecord:
    """Gate of the world's files. ``build_script`` None: reference data, which ships without a solution.

    Causes in order: ``no_world`` (a required file or directory is missing), ``invalid_world`` (links, then
    every violation of the world format).
    """
    missing = list(_missing(world, build_script))
    if missing:
        return GateRecord(NO_WORLD, tuple(missing))
    violations = tuple(str(violation) for violation in check_world(world, scorer=True, render=video))
    return GateRecord(INVALID_WORLD, violations) if violations else GateRecord()


def reference_shape(video: Path) -> Shape:
    """Shape of a reference video. Raises :class:`ReferenceFault` when it cannot be read."""
    try:
        return _shape(probe(video))
    except (VideoError, OSError) as error:
        raise ReferenceFault(f"reference video {video}: {error}") from error


def _shape(info: VideoInfo) -> Shape:
    return info.frames, info.height, info.width, info.fps


def _words(shape: Shape) -> str:
    frames, height, width, fps = shape
    return f"{frames} frames of {width}x{height} at {fps} fps"


def _missing(world: Path, build_script: Path | None) -> Iterator[str]:
    for name in (names.RENDER, names.CAMERA):
        if not (world / name).is_file():
            yield f"{names.WORLD}/{name}"
    if build_script is not None and not build_script.is_file():
        yield f"{names.SOLUTION}/{names.BUILD_SCRIPT}"
    for name in (names.MESHES, names.DYNAMICS):
        if not (world / name).is_dir():
            yield f"{names.WORLD}/{name}/"
