"""Estimate files: whole or not at all, with a note of what they rest on that readers of arrays do not mind.

The note (JSON text) is a further member ``provenance`` of an archive, and an attribute ``provenance`` of an
HDF5 file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from contract.record import replacing
from scorer.arrays import write_npz
from scorer.dense import DenseFile, writing

PROVENANCE = "provenance"


def _nothing() -> None:
    pass


@dataclass
class Output:
    """Where one estimate of one case goes.

    path : the file. provenance : what it rests on; an estimate may add facts before it writes.
    advance : called after each frame.
    """

    path: Path
    provenance: dict[str, Any] = field(default_factory=dict)
    advance: Callable[[], None] = _nothing

    def archive(self, members: Mapping[str, Any], *, compressed: bool) -> None:
        """Write an ``.npz``."""
        arrays = {name: np.asarray(value) for name, value in members.items()}
        with replacing(self.path) as stream:
            write_npz(stream, arrays | {PROVENANCE: np.array(self._text())}, compressed=compressed)

    @contextmanager
    def dense(self) -> Iterator[FrameWriter]:
        """An HDF5 file that is written frame by frame; it appears when the block ends well."""
        with _in_a_thread(self._dense()) as writer:
            yield writer

    @contextmanager
    def _dense(self) -> Iterator[DenseFile]:
        with replacing(self.path) as stream, writing(stream) as file:
            yield file
            file.note(PROVENANCE, self._text())

    def _text(self) -> str:
        return json.dumps(self.provenance, sort_keys=True)


class FrameWriter:
    """Writes in a thread of its own, at most one frame behind: packing overlaps with inference, and Ctrl-C,
    which reaches the main thread only, never cuts into HDF5.

    An error of a write is raised by the next call, or by the end of the block.
    """

    def __init__(self, pool: ThreadPoolExecutor, file: DenseFile) -> None:
        self._pool, self._file = pool, file
        self._pending: Future[None] | None = None

    def put(self, name: str, value: Any) -> None:
        """A whole array, scalar or text."""
        self._do(self._file.put, name, value)

    def frames(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, fill: Any = None) -> None:
        """Declare an array of frames; those never written read as ``fill``."""
        self._do(self._file.frames, name, shape, dtype, fill)

    def frame(self, name: str, index: int, frame: Any) -> None:
        """One frame of a declared array; the caller must not change it afterwards."""
        self._do(self._file.frame, name, index, frame)

    def finish(self) -> None:
        """Wait for what is being written."""
        if self._pending is not None:
            self._pending.result()

    def _do(self, function: Callable[..., None], *arguments: Any) -> None:
        self.finish()
        self._pending = self._pool.submit(function, *arguments)


@contextmanager
def _in_a_thread(manager: AbstractContextManager[DenseFile]) -> Iterator[FrameWriter]:
    held = _Held(manager)
    with ThreadPoolExecutor(1, thread_name_prefix="estimate-writer") as pool:
        try:
            writer = FrameWriter(pool, pool.submit(held.open).result())
            yield writer
            writer.finish()
            pool.submit(held.close).result()
        except BaseException as error:
            # Queued behind what is under way: opening, a write, or the good end.
            pool.submit(held.close, error).result()
            raise


class _Held:
    """A context manager that is left once, whatever came in between."""

    def __init__(self, manager: AbstractContextManager[DenseFile]) -> None:
        self._manager = manager
        self._open = False

    def open(self) -> DenseFile:
        file = self._manager.__enter__()
        self._open = True
        return file

    def close(self, error: BaseException | None = None) -> None:
        if self._open:
            self._open = False
            if error is None:
                self._manager.__exit__(None, None, None)
            else:
                self._manager.__exit__(type(error), error, error.__traceback__)
