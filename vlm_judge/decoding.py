"""One pass over a video: the frames that the judge sees, as JPEG, and what the blank-render gate needs.

Scaling is done by FFmpeg's filters on the decoded pictures, so that the gate has the published numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vlm_judge import gate
from vlm_judge.gate import Gate, Image
from vlm_judge.sampling import RateSampler, even_indices, rate_of
from world.video import Orientation, VideoError, pictures

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

VERSION = 1
"""Of what this module makes from a video; part of the cache's key."""


@dataclass(frozen=True)
class Sampler:
    """How frames are chosen and encoded. frames : that many, evenly with both ends; or None and fps : at that
    rate. width : pixels; heights are even and keep the aspect. quality : FFmpeg's ``-q:v``, lower is better.
    """

    width: int
    quality: int
    frames: int | None = None
    fps: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Decoded:
    """total : frames of the video. indices : the chosen ones, in order (a slow video at a high rate repeats
    frames). jpegs : their pictures.
    """

    total: int
    indices: list[int]
    jpegs: list[bytes]
    gate: Gate


def decode(path: Path, sampler: Sampler) -> Decoded:
    """Decode ``path`` to its end, once. Raises ``VideoError`` where it is damaged, and ``OSError``.

    Which frames are wanted depends on how many there are. The container's claim is taken for it, and only
    where it was wrong is the video decoded a second time.
    """
    if sampler.fps is not None:
        return _pass(path, sampler, None)
    assert sampler.frames is not None
    claim = _claimed(path)
    first = _pass(path, sampler, set(even_indices(claim, sampler.frames)) if claim else set())
    right = even_indices(first.total, sampler.frames)
    return first if first.indices == right else _pass(path, sampler, set(right))


def _claimed(path: Path) -> int:
    """Frames according to the container, 0 where it says nothing or cannot be read."""
    import av

    try:
        with av.open(str(path), options={"protocol_whitelist": "file"}) as container:
            return container.streams.video[0].frames if container.streams.video else 0
    except (av.FFmpegError, OSError, ValueError):
        return 0


def _pass(path: Path, sampler: Sampler, wanted: set[int] | None) -> Decoded:
    """wanted : indices to keep; None keeps those of the sampler's rate."""
    edges, flat = (_Scaler(f"{w}:{h}", "rgb24") for w, h in (gate.EDGE_SIZE, gate.FLAT_SIZE))
    shown = _Scaler(f"{sampler.width}:-2", "yuvj420p")
    statistics = gate.Counter()
    rate = RateSampler(rate_of(sampler.fps)) if sampler.fps is not None else None
    indices: list[int] = []
    jpegs: list[bytes] = []

    def keep(chosen: int, frame: VideoFrame, turn: Orientation) -> None:
        repeated = bool(indices) and indices[-1] == chosen
        indices.append(chosen)
        jpegs.append(jpegs[-1] if repeated else _jpeg(shown.scale(frame, turn), sampler.quality))

    index, start, end = -1, None, Fraction(0)
    held: tuple[VideoFrame, Orientation] | None = None  # shows for certain only when a later frame has come
    for index, (frame, turn) in enumerate(pictures(path)):
        if index % gate.EVERY == 0:
            statistics.add(_array(edges.scale(frame, turn)), _array(flat.scale(frame, turn)))
        if rate is None:
            if wanted is not None and index in wanted:
                keep(index, frame, turn)
            continue
        start, time, end = _timing(frame, start)
        for chosen in rate.add(index, time):
            if held is not None:
                keep(chosen, *held)
        held = frame, turn
    if rate is not None and held is not None:
        for chosen in rate.end(end):
            keep(chosen, *held)
        if not indices:  # shorter than half a slot
            keep(index, *held)
    return Decoded(index + 1, indices, jpegs, statistics.result())


def _timing(frame: VideoFrame, start: Fraction | None) -> tuple[Fraction, Fraction, Fraction]:
    """Start of the video, and the frame's time and end counted from there, in seconds."""
    if frame.pts is None or frame.time_base is None:
        raise VideoError("has a frame without a time")
    time = frame.pts * frame.time_base
    start = time if start is None else start
    return start, time - start, time - start + (frame.duration or 0) * frame.time_base


def _array(frame: VideoFrame) -> Image:
    return cast("Image", frame.to_ndarray())


class _Scaler:
    """FFmpeg's ``scale`` filter after turning the picture as displayed; rebuilt when pictures change size."""

    def __init__(self, size: str, form: str) -> None:
        self._size, self._form = size, form
        self._graph: Any = None
        self._of: object = None

    def scale(self, frame: VideoFrame, turn: Orientation) -> VideoFrame:
        kind = (frame.width, frame.height, frame.format.name, turn)
        if kind != self._of:
            self._graph, self._of = self._built(frame, turn), kind
        self._graph.push(frame)
        return cast("VideoFrame", self._graph.pull())

    def _built(self, frame: VideoFrame, turn: Orientation) -> Any:
        from av.filter import Graph

        graph = Graph()
        last = graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
        )
        for name, argument in (*_turning(turn), ("scale", self._size), ("format", self._form)):
            step = graph.add(name, argument)
            last.link_to(step)
            last = step
        last.link_to(graph.add("buffersink"))
        graph.configure()
        return graph


def _turning(turn: Orientation) -> Iterator[tuple[str, str]]:
    if turn.transpose:
        yield "transpose", "cclock_flip"
    if turn.flip_rows:
        yield "vflip", ""
    if turn.flip_columns:
        yield "hflip", ""


def _jpeg(frame: VideoFrame, quality: int) -> bytes:
    import av

    encoder = cast("Any", av.CodecContext.create("mjpeg", "w"))
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    # PyAV cannot set a frame's own quality, as ``-q:v`` does; one quantiser to choose from comes to the same.
    encoder.options = {"qmin": str(quality), "qmax": str(quality)}
    frame.pts = 0
    frame.time_base = encoder.time_base
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)
