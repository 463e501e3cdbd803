"""What crosses the pipe between the scorer and its workers. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

READY = "ready"

Dimensions = tuple[int, int, int, float]
"""Frames, height, width, frames a second."""


class ReferenceFault(Exception):
    """The case's own video or world cannot be used: the operator's fault, never a score of the submission."""

    infrastructure = True


@dataclass(frozen=True)
class CaseFault:
    """In place of a measurement: what is wrong with the case's own files. The worker is as good as before."""

    text: str


@dataclass(frozen=True)
class Reply:
    """Answer to one request: a value, or a failure.

    text : ``<ExceptionClass>: <message>``. infrastructure : the machine's fault (out of memory, disk full),
    not the submission's. trace : the last lines of the traceback.
    """

    value: Any = None
    failed: bool = False
    text: str = ""
    infrastructure: bool = False
    trace: str = ""


@dataclass(frozen=True)
class Measured:
    """A measurement without its arrays, which the worker has staged on disk.

    detail : plain JSON values (non-finite floats still in place). staged : ``{final name: staged name}``.
    vouched : keys that the metric stands for, None for all of its type. causes : of keys that become
    uncomputable.
    """

    detail: Mapping[str, Any]
    staged: Mapping[str, str] = field(default_factory=dict)
    vouched: frozenset[str] | None = None
    causes: Mapping[str, str] = field(default_factory=dict)


VideoFacts = tuple[Any, ...]
"""The members of a ``world.video.VideoInfo``, which the scorer's side does not load."""


@dataclass(frozen=True)
class Checked:
    """Outcome for one reference world: its faults, or what is known of the render of one that has none."""

    faults: tuple[str, ...] = ()
    render: VideoFacts | None = None


@dataclass(frozen=True)
class GateRecord:
    """Outcome of one gate. cause : None when open."""

    cause: str | None = None
    detail: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: Any) -> GateRecord | None:
        """Read back what :meth:`record` gave; None for anything else."""
        if not isinstance(record, dict) or not isinstance(record.get("detail"), list):
            return None
        cause = record.get("error")
        if not (cause is None or isinstance(cause, str)):
            return None
        return cls(cause, tuple(str(line) for line in record["detail"]))

    @property
    def ok(self) -> bool:
        return self.cause is None

    def record(self) -> dict[str, Any]:
        """As it stands in ``reward.detail.json``."""
        return {"ok": self.ok, "error": self.cause, "detail": list(self.detail)}


@dataclass(frozen=True)
class Gates:
    """Both gates of one world; ``world`` is None when it was not run, ``dimensions`` when unknown."""

    video: GateRecord
    world: GateRecord | None = None
    dimensions: Dimensions | None = None

    @classmethod
    def of(cls, detail: Mapping[str, Any]) -> Gates | None:
        """The gates that a detail file records, or None when it records none that make sense."""
        video, world = GateRecord.of(detail.get("video_gate")), GateRecord.of(detail.get("world_gate"))
        shape = detail.get("dimensions")
        if video is None or (video.ok and world is None):
            return None
        return cls(video, world, tuple(shape) if isinstance(shape, list) and len(shape) == 4 else None)

    @property
    def closed(self) -> GateRecord | None:
        """The gate that is closed, if one is."""
        if not self.video.ok:
            return self.video
        return self.world if self.world is not None and not self.world.ok else None
