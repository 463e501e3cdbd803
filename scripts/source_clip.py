"""A user's video file: what it holds, and which of its frames become the frames of a case, at which size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from contract.constants import MAX_MESH_FRAMES
from contract.errors import UserError
from world.video import Image, VideoError, VideoInfo, frames, probe

SMALLEST_SIDE = 16
RATE_TOLERANCE = Fraction(5, 1000)
"""A rate this near to the wanted one keeps every frame: 30000/1001 becomes 30."""
HIGHEST_RATE = 120
"""Most frames a second that are chosen for a video without a steady rate."""


@dataclass(frozen=True)
class Source:
    """A readable video. ``aspect``: width of a displayed pixel over its height."""

    path: Path
    info: VideoInfo
    aspect: Fraction


@dataclass(frozen=True)
class Plan:
    """What is made of a source.

    indices : source frame of every output frame, never decreasing.
    height, width : even; ``resized`` when frames are scaled to them instead of cut.
    notes : what differs from the source, one line each.
    """

    fps: int
    indices: tuple[int, ...]
    height: int
    width: int
    resized: bool
    notes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.indices), self.height, self.width


def inspect(path: Path) -> Source:
    """Decode ``path`` to its end. Raises ``UserError`` for whatever cannot be used as a video."""
    if not path.exists():
        raise UserError("no such file", where=path)
    if not path.is_file():
        raise UserError("is not a file", where=path, expected="a video file")
    try:
        aspect = _pixel_aspect(path)
        info = probe(path)
    except VideoError as error:
        raise UserError(str(error), where=path, expected="a whole video file") from error
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", where=path) from error
    if info.rotation % 180:
        aspect = 1 / aspect
    return Source(path, info, aspect)


def _pixel_aspect(path: Path) -> Fraction:
    """Aspect of a coded pixel; refuses what FFmpeg would play but nobody filmed."""
    try:
        with av.open(str(path), "r", options={"protocol_whitelist": "file"}) as container:
            streams, kind = container.streams.video, container.format.name
            if kind == "tty" or not container.streams:
                raise VideoError("is not a video but text")
            if kind.endswith("_pipe") or kind == "image2":
                raise VideoError("is a still picture, not a video")
            if streams and streams[0].disposition & av.stream.Disposition.attached_pic:
                raise VideoError("holds sound and a cover picture, but no video")
            if not streams and container.streams.audio:
                raise VideoError("holds sound only, no video stream")
            aspect = streams[0].sample_aspect_ratio if streams else None
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, VideoError):
            raise
        raise VideoError(
            f"cannot be opened as a video ({getattr(error, 'strerror', None) or error})"
        ) from error
    return Fraction(aspect) if aspect and aspect > 0 else Fraction(1)


def plan(
    source: Source,
    *,
    max_side: int = 1280,
    fps: int | None = None,
    start: float = 0.0,
    count: int | None = None,
) -> Plan:
    """Choose rate, frames and size.

    fps : wanted frame rate; None: the nearest integer of the source's.
    start : seconds that are left out at the beginning. count : frames to keep; None: all.

    Raises ``UserError`` when nothing, too little or too much is left.
    """
    height, width, resized, notes = _size(source, max_side)
    rate, indices, told = _timing(source.info, fps)
    notes += told
    first = round(start * rate)
    if first >= len(indices):
        raise UserError(
            f"nothing is left after {start:g} s: there are {len(indices)} frames at {rate} fps",
            where=source.path,
            expected=f"--start below {len(indices) / rate:.2f}",
        )
    if count is not None and first + count > len(indices):
        raise UserError(
            f"has {len(indices) - first} frames at {rate} fps from {start:g} s on, not {count}",
            where=source.path,
            expected=f"--frames {len(indices) - first} or fewer",
        )
    chosen = indices[first:] if count is None else indices[first : first + count]
    if len(chosen) < len(indices):
        notes.append(f"trimmed to frames {first} to {first + len(chosen) - 1} of {len(indices)}")
    if len(chosen) > MAX_MESH_FRAMES:
        raise UserError(
            f"would become {len(chosen)} frames; a world holds at most {MAX_MESH_FRAMES}",
            where=source.path,
            next_step="shorten it with --start and --frames, or lower --fps",
        )
    return Plan(rate, tuple(chosen), height, width, resized, tuple(notes))


def _size(source: Source, max_side: int) -> tuple[int, int, bool, list[str]]:
    """Even height and width, whether frames are scaled to them, and notes."""
    info, notes = source.info, []
    height, width = Fraction(info.height), Fraction(info.width)
    if source.aspect != 1:
        # Only ever stretch: shrinking the other side would lose lines.
        width, height = (
            (width * source.aspect, height) if source.aspect > 1 else (width, height / source.aspect)
        )
        notes.append(f"pixels of aspect {source.aspect} made square")
    scale = min(Fraction(1), Fraction(max_side) / max(height, width))
    resized = scale != 1 or source.aspect != 1
    if resized:
        ceiling = max_side - max_side % 2
        rows, columns = (min(ceiling, 2 * round(side * scale / 2)) for side in (height, width))
        notes.append(f"resized from {info.width}×{info.height} to {columns}×{rows}")
    else:
        rows, columns = info.height - info.height % 2, info.width - info.width % 2
        if (rows, columns) != (info.height, info.width):
            notes.append(f"cut from {info.width}×{info.height} to {columns}×{rows}: sides must be even")
    if min(rows, columns) < SMALLEST_SIDE:
        raise UserError(
            f"frames of {info.width}×{info.height} would become {columns}×{rows}",
            where=source.path,
            expected=f"at least {SMALLEST_SIDE} pixels a side",
        )
    return rows, columns, resized, notes


def _timing(info: VideoInfo, wanted: int | None) -> tuple[int, list[int], list[str]]:
    """Integer rate, source index of every output frame, and notes."""
    rate, timed = info.fps, info.variable and bool(np.isfinite(info.times).all())
    span = info.times[-1] - info.times[0] if timed else 0.0
    if timed and span > 0.0:
        rate = Fraction((info.frames - 1) / span).limit_denominator(1000)
        target = wanted or min(HIGHEST_RATE, max(1, round(rate)))
        indices = _nearest(np.asarray(info.times) - info.times[0], span + float(1 / rate), target)
        return target, indices, [f"uneven frame times resampled to {target} fps (mean was {float(rate):.4g})"]
    target = wanted or max(1, round(rate))
    if abs(rate - target) <= RATE_TOLERANCE * rate:
        notes = [] if rate == target else [f"{rate} fps becomes {target} fps, frame by frame"]
        return target, list(range(info.frames)), notes
    times = np.arange(info.frames) / float(rate)
    note = f"{float(rate):.4g} fps resampled to {target} fps: nearest frame in time"
    return target, _nearest(times, info.frames / float(rate), target), [note]


def _nearest(times: np.ndarray, duration: float, fps: int) -> list[int]:
    """Index of the frame nearest to each tick k/fps within ``duration`` seconds; the earlier one on a tie."""
    ticks = np.arange(max(1, round(duration * fps))) / fps
    middles = (times[1:] + times[:-1]) / 2.0
    return [int(i) for i in np.searchsorted(middles, ticks - 1e-9)]


def images(source: Source, made: Plan) -> Iterator[Image]:
    """The frames of the plan, uint8 (H, W, 3), decoded one at a time; the source is decoded to its end.

    Raises ``UserError`` when the file does not give what it gave when it was inspected.
    """
    wanted = iter(made.indices)
    following = next(wanted, None)
    try:
        for index, image in enumerate(frames(source.path)):
            if following == index:
                fitted = _fit(image, source.info, made)
                while following == index:
                    yield fitted
                    following = next(wanted, None)
    except (VideoError, OSError) as error:
        raise UserError(str(error), where=source.path) from error
    if following is not None:
        raise UserError("has changed while it was read", where=source.path, next_step="run the command again")


def _fit(image: Image, info: VideoInfo, made: Plan) -> Image:
    if not made.resized and image.shape[:2] == (info.height, info.width):
        return np.ascontiguousarray(image[: made.height, : made.width])
    frame = av.VideoFrame.from_ndarray(image, format="rgb24")
    scaled = frame.reformat(width=made.width, height=made.height, interpolation="AREA")
    return np.asarray(scaled.to_ndarray(format="rgb24"), np.uint8)
