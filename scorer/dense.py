"""Writing the dense HDF5 container: one dataset an array at the root, one frame a chunk, shuffle and LZF.

HDF5 cannot let go of a file that it failed to write: closing fails too, the file stays open, and the process
crashes at its end. So HDF5 never learns of a failure here. What it writes goes through a sink that remembers
the first error and swallows what follows, and the error is raised once HDF5 has let go.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike


class DenseFile:
    """An HDF5 file that is being written."""

    def __init__(self, file: Any, sink: _Sink) -> None:
        self._file, self._sink = file, sink

    def put(self, name: str, value: Any) -> None:
        """Write a whole array or scalar. Unicode becomes UTF-8 text; rank 3 and more has one chunk a frame.

        Raises ``OSError`` when the disk cannot take it.
        """
        import h5py

        array = np.asarray(value)
        if array.dtype.kind == "U":
            self._file.create_dataset(name, data=array.astype(h5py.string_dtype("utf-8")))
        elif array.ndim >= 3 and array.size:
            self.frames(name, array.shape, array.dtype)
            for index, frame in enumerate(array):
                self.frame(name, index, frame)
        else:
            self._file.create_dataset(name, data=array)
        self._sink.check()

    def frames(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, fill: Any = None) -> None:
        """Declare an array of rank 3 or more. Frames that are never written read as ``fill`` and take no
        room.
        """
        self._file.create_dataset(
            name, shape, dtype, chunks=(1, *shape[1:]), shuffle=True, compression="lzf", fillvalue=fill
        )

    def frame(self, name: str, index: int, frame: Any) -> None:
        """Write one frame of a declared array. Raises ``OSError`` when the disk cannot take it."""
        self._file[name][index] = frame
        self._sink.check()

    def note(self, name: str, text: str) -> None:
        """An attribute of the file: readers of its arrays do not see it."""
        self._file.attrs[name] = text


@contextmanager
def writing(stream: IO[bytes]) -> Iterator[DenseFile]:
    """An HDF5 file in ``stream``, an empty file that is open for writing; complete when the block ends.

    Raises ``OSError`` from the block's end too. To be used in a thread that gets no signals, or where signals
    raise nothing: an exception inside HDF5 is lost or worse.
    """
    import h5py

    handle = os.dup(stream.fileno())
    try:
        sink = _Sink(handle)
        with h5py.File(sink, "w") as file:
            yield DenseFile(file, sink)
        sink.check()
    finally:
        os.close(handle)


class _Sink:
    """A file object for h5py on an open descriptor; never raises."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._position = 0
        self._size = 0
        self.error: OSError | None = None

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_CUR: self._position, os.SEEK_END: self._size}.get(whence, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        start, self._position = self._position, self._position + len(view)
        self._size = max(self._size, self._position)
        done = 0
        while done < len(view) and self.error is None:
            try:
                done += os.pwrite(self._handle, view[done:], start + done)
            except OSError as error:
                self.error = error
        return len(view)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        try:
            data = os.pread(self._handle, len(view), self._position)
        except OSError as error:
            self.error = self.error or error
            data = b""
        view[: len(data)] = data
        view[len(data) :] = bytes(len(view) - len(data))
        self._position += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        buffer = bytearray(max(0, self._size - self._position) if size < 0 else size)
        self.readinto(buffer)
        return bytes(buffer)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._position if size is None else size
        try:
            os.ftruncate(self._handle, self._size)
        except OSError as error:
            self.error = self.error or error
        return self._size

    def flush(self) -> None:
        """Everything is written at once."""
