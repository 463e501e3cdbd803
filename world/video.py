"""The one video reader (and writer) of the project.

Header counts lie, edit lists hide frames, phones store frames sideways, and a cut file plays without
complaint. So a video is always decoded to its end, frames come in display orientation, and a file that ends
early is an error.
"""

from __future__ import annotations

import math
import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

Image = npt.NDArray[np.uint8]

MAX_SIDE = 16_384
"""Longest image side that is decoded; a header that claims more is refused before a frame is allocated."""
_UNKNOWN_COUNT_TOLERANCE = 0.02
"""Share of frames that may be missing where only a rounded duration tells how many there should be."""


class VideoError(ValueError):
    """A video that cannot be used. The three counts are None where unknown.

    header : frames according to the container's index. decoded : frames that came out. expected : frames
    according to the duration on the edited timeline.
    """

    def __init__(
        self,
        message: str,
        *,
        header: int | None = None,
        decoded: int | None = None,
        expected: int | None = None,
    ) -> None:
        self.header, self.decoded, self.expected = header, decoded, expected
        super().__init__(message)


@dataclass(frozen=True)
class VideoInfo:
    """Facts of a decoded video.

    frames : frames that decoding yields (edit lists applied).
    height, width : pixels, in display orientation.
    fps : exact frame rate.
    header_frames : what the container claims; 0 when it claims nothing.
    rotation : counter-clockwise degrees that display orientation adds to the coded picture.
    codec, pixel_format : names as FFmpeg gives them.
    variable : frame times are not evenly spaced (by more than half a frame).
    times : presentation time of each frame in seconds, from 0.
    """

    frames: int
    height: int
    width: int
    fps: Fraction
    header_frames: int
    rotation: int
    codec: str
    pixel_format: str
    variable: bool
    times: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.frames, self.height, self.width


def probe(path: Path | str) -> VideoInfo:
    """Decode ``path`` to its end and report what it holds.

    Raises ``VideoError`` when it is no video, is damaged, ends early or holds no frame, and
    ``FileNotFoundError`` when it does not exist.
    """
    with _Decoder(Path(path)) as decoder:
        times: list[float] = []
        first: VideoFrame | None = None
        for frame in decoder.frames():
            first = first or frame
            times.append(_seconds(frame))
        if first is None:
            raise VideoError("holds no frame", header=decoder.header, decoded=0, expected=decoder.expected())
        height, width = first.height, first.width
        orientation = Orientation.of(first)
        if orientation.transpose:
            height, width = width, height
        start = times[0]
        times = [time - start for time in times]
        return VideoInfo(
            frames=len(times),
            height=height,
            width=width,
            fps=decoder.rate,
            header_frames=decoder.header or 0,
            rotation=int(first.rotation) % 360,
            codec=decoder.stream.codec_context.name,
            pixel_format=str(first.format.name),
            variable=_uneven(times, decoder.rate),
            times=tuple(times),
        )


def frames(path: Path | str, step: int = 1) -> Iterator[Image]:
    """Every ``step``-th frame of ``path`` as uint8 (H, W, 3) RGB in display orientation, one at a time.

    The file is decoded to its end, so that truncation is noticed: ``VideoError`` is raised then, after the
    frames that could be had. Steps below 1 act as 1.
    """
    step = max(1, step)
    with _Decoder(Path(path)) as decoder:
        count = 0
        for frame in decoder.frames():
            if count % step == 0:
                yield Orientation.of(frame).apply(frame.to_ndarray(format="rgb24"))
            count += 1
        if count == 0:
            raise VideoError("holds no frame", header=decoder.header, decoded=0, expected=decoder.expected())


def pictures(path: Path | str) -> Iterator[tuple[VideoFrame, Orientation]]:
    """Every frame of ``path`` as FFmpeg holds it, and how to turn it; for who scales before turning.

    Otherwise as :func:`frames`.
    """
    with _Decoder(Path(path)) as decoder:
        count = 0
        for frame in decoder.frames():
            yield frame, Orientation.of(frame)
            count += 1
        if count == 0:
            raise VideoError("holds no frame", header=decoder.header, decoded=0, expected=decoder.expected())


def write_video(
    path: Path | str, images: Iterable[Image], fps: Fraction | int | float, *, crf: int = 18
) -> int:
    """Encode RGB images as H.264 MP4; the file appears at ``path`` whole or not at all.

    Parameters
    ----------
    images : uint8 (H, W, 3) arrays of one size. Even sizes become yuv420p, odd ones yuv444p (4:2:0 cannot
    hold them).
    fps : frame rate, kept exactly.
    crf : quality, 0 (lossless) … 51.

    Returns the number of frames written. Raises ``ValueError`` on an empty sequence or an image of another
    size or type.
    """
    import av

    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    count = 0
    try:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream: Any = None
            shape: tuple[int, ...] = ()
            for image in images:
                if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                    raise ValueError(f"a frame must be uint8 (H, W, 3), not {image.dtype} {image.shape}")
                if stream is None:
                    shape = image.shape
                    stream = _output_stream(container, Fraction(fps).limit_denominator(1_000_000), shape, crf)
                elif image.shape != shape:
                    raise ValueError(f"frame {count} is {image.shape}, the first was {shape}")
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
                frame.pts = count
                frame.time_base = stream.codec_context.time_base
                container.mux(stream.encode(frame))
                count += 1
            if stream is None:
                raise ValueError("no frame to write")
            container.mux(stream.encode(None))
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    return count


def _output_stream(container: Any, rate: Fraction, shape: tuple[int, ...], crf: int) -> Any:
    height, width = shape[:2]
    # Two threads whatever the machine has: x264's output depends on their number.
    options = {"crf": str(crf), "preset": "medium", "threads": "2"}
    if platform.machine() in ("x86_64", "AMD64"):
        # Its AVX-512 code gives other bytes for the same frames once in thirty runs.
        options["x264-params"] = "asm=AVX2"
    stream = container.add_stream("libx264", rate=rate, options=options)
    stream.width, stream.height = width, height
    stream.pix_fmt = "yuv444p" if width % 2 or height % 2 else "yuv420p"
    stream.codec_context.time_base = 1 / rate
    return stream


@dataclass(frozen=True)
class Orientation:
    """How a coded picture becomes the displayed one: transpose, then mirror rows and columns."""

    transpose: bool = False
    flip_rows: bool = False
    flip_columns: bool = False

    @classmethod
    def of(cls, frame: VideoFrame) -> Orientation:
        side_data: Any = frame.side_data
        for data in side_data:
            if data.type.name == "DISPLAYMATRIX":
                # 3×3 fixed point, row vectors: X = a·x + c·y, Y = b·x + d·y.
                a, b, _, c, d = np.frombuffer(bytes(data)[:36], dtype="=i4")[:5].tolist()
                if abs(a) + abs(d) >= abs(b) + abs(c):
                    return cls(False, d < 0, a < 0)
                return cls(True, b < 0, c < 0)
        return cls()

    def apply(self, image: npt.NDArray[Any]) -> Image:
        if self.transpose:
            image = image.swapaxes(0, 1)
        if self.flip_rows:
            image = image[::-1]
        if self.flip_columns:
            image = image[:, ::-1]
        return np.ascontiguousarray(image)


class _Decoder:
    """An open file and its first video stream; ``frames`` checks at the end that nothing is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.container: InputContainer
        self.stream: VideoStream
        self._decoded = 0
        self._damaged = False

    def __enter__(self) -> _Decoder:
        import av

        if not S_ISREG(self.path.stat().st_mode):
            # A pipe or device would block for ever.
            raise VideoError("is not a regular file")
        try:
            # Only local files: a playlist must not make us open what it names.
            self.container = av.open(str(self.path), "r", options={"protocol_whitelist": "file"})
        except (av.FFmpegError, OSError, ValueError) as error:
            raise VideoError(f"cannot be opened as a video ({_reason(error)})") from error
        try:
            if not self.container.streams.video:
                raise VideoError("holds no video stream")
            self.stream = self.container.streams.video[0]
            if not 0 < max(self.stream.width, self.stream.height) <= MAX_SIDE:
                size = f"{self.stream.width}×{self.stream.height}"
                raise VideoError(f"has frames of {size}; at most {MAX_SIDE} a side can be read")
            self.stream.thread_type = "AUTO"
        except BaseException:
            self.container.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.container.close()

    @property
    def header(self) -> int | None:
        return self.stream.frames or None

    @property
    def rate(self) -> Fraction:
        """Frame rate: the stream's real base rate, or an average where the container gives none."""
        for rate in (self.stream.base_rate, self.stream.average_rate, self.stream.guessed_rate):
            if rate:
                return Fraction(rate)
        raise VideoError("states no frame rate", header=self.header)

    def expected(self) -> int | None:
        """Frames that the duration on the edited timeline makes room for, or None where it is not stated."""
        rate = self.stream.average_rate or self.stream.base_rate
        if not rate:
            return None
        if self.stream.duration is not None and self.stream.time_base is not None:
            return round(self.stream.duration * self.stream.time_base * rate)
        # The container's duration covers its longest stream, which need not be ours.
        if self.container.duration is not None and len(self.container.streams) == 1:
            return round(Fraction(self.container.duration, 1_000_000) * rate)
        return None

    def frames(self) -> Iterator[VideoFrame]:
        import av

        try:
            for packet in self.container.demux(self.stream):
                # A partial last packet still decodes, to a picture that is half grey.
                self._damaged |= bool(packet.is_corrupt)
                for frame in packet.decode():
                    self._damaged |= bool(frame.is_corrupt)
                    self._decoded += 1
                    yield frame
        except (av.FFmpegError, OSError) as error:
            raise self._incomplete(f"is damaged ({_reason(error)})") from error
        self._check_complete()

    def _check_complete(self) -> None:
        expected = self.expected()
        if self._damaged:
            raise self._incomplete("is damaged or cut short")
        if expected is None:
            return
        if self.header is not None:
            # An edit list hides frames that the index counts: then the duration is the shorter of the two.
            missing = self._decoded < min(self.header, expected - 1)
        else:
            missing = self._decoded < math.floor(expected * (1 - _UNKNOWN_COUNT_TOLERANCE)) - 1
        if missing:
            raise self._incomplete("ends early")

    def _incomplete(self, what: str) -> VideoError:
        expected = self.expected()
        counts = f"header {_count(self.header)}, decoded {self._decoded}, expected {_count(expected)} frames"
        return VideoError(f"{what}: {counts}", header=self.header, decoded=self._decoded, expected=expected)


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)


def _seconds(frame: VideoFrame) -> float:
    return math.nan if frame.time is None else float(frame.time)


def _uneven(times: list[float], rate: Fraction) -> bool:
    steps = np.diff(np.asarray(times, dtype=np.float64))
    if steps.size == 0 or not np.isfinite(steps).all():
        return False
    return bool((np.abs(steps - float(1 / rate)) > 0.5 * float(1 / rate)).any())
