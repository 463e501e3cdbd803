"""Reading the dense HDF5 container of estimates: checked against its own declarations before data is read.

Names, types, shapes, the size of a frame, and that this installation can decode every filter in use. Whatever
is wrong is an :class:`EstimateError`, which names the file and the dataset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
from numpy.typing import NDArray

from world.validation.files import describe
from world.validation.violation import reason

FRAME_LIMIT = 1 << 30
"""Bytes that a frame of a dataset, or a chunk, may unpack to: the flow of 16384² pixels."""
_PLUGIN = "hdf5plugin"
_FILTERS = {
    4: ("szip", "an HDF5 library built with libaec"),
    307: ("bzip2", _PLUGIN),
    32000: ("LZF", "h5py"),
    32001: ("Blosc", _PLUGIN),
    32004: ("LZ4", _PLUGIN),
    32008: ("bitshuffle", _PLUGIN),
    32013: ("ZFP", _PLUGIN),
    32015: ("Zstandard", _PLUGIN),
    32017: ("SZ", _PLUGIN),
    32018: ("FCIDECOMP", _PLUGIN),
    32024: ("SZ3", _PLUGIN),
    32026: ("Blosc2", _PLUGIN),
    32028: ("SPERR", _PLUGIN),
}
"""Registered HDF5 filter ids, and the package that decodes each."""


_KINDS = {"f": "floats", "b": "booleans", "i": "integers", "u": "integers"}
_H5PY_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError)
"""What h5py raises for a file that is not as it should be."""


class EstimateError(ValueError):
    """An estimate that cannot be read; the message names the file and the dataset.

    The operator's fault or the installation's, never the submission's: it is no reason for a score.
    """

    infrastructure = True


class DenseFile:
    """An HDF5 file with one dataset an array at its root."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file = file
        self.path = path

    def array(self, name: str, *, rank: int, kinds: str) -> DenseArray:
        """A dataset of that rank and of one of the kinds (numpy's letters). Raises ``EstimateError``."""
        dataset = self._dataset(name)
        if dataset.ndim != rank or dataset.dtype.kind not in kinds:
            held = f"{dataset.dtype} of shape {dataset.shape}"
            expected = f"{_words(kinds)} of rank {rank}"
            raise EstimateError(f"{self.path}: dataset {name!r} holds {held}; expected {expected}")
        size = dataset.dtype.itemsize
        frame, chunk = (math.prod(shape) * size for shape in (dataset.shape[1:], dataset.chunks or ()))
        if max(frame, chunk) > FRAME_LIMIT:
            raise EstimateError(
                f"{self.path}: dataset {name!r} of shape {dataset.shape}, chunks {dataset.chunks}, would "
                f"unpack {max(frame, chunk) >> 20} MiB at a time; expected at most {FRAME_LIMIT >> 20} MiB"
            )
        return DenseArray(dataset, self.path, name)

    def whole(self, name: str, least: int) -> int:
        """One whole number. Raises ``EstimateError``."""
        value = float(self.numbers(name))
        if value != round(value) or value < least:
            raise EstimateError(
                f"{self.path}: dataset {name!r} is {value:g}; expected a whole number, at least {least}"
            )
        return int(value)

    def numbers(self, name: str, shape: tuple[int, ...] = ()) -> NDArray[np.float64]:
        """A few finite numbers of that shape, float64. Raises ``EstimateError``."""
        dataset = self._dataset(name)
        if dataset.shape != shape or dataset.dtype.kind not in "iuf":
            held = f"{dataset.dtype} of shape {dataset.shape}"
            raise EstimateError(f"{self.path}: dataset {name!r} holds {held}; expected numbers {shape}")
        values = np.asarray(DenseArray(dataset, self.path, name).read(()), np.float64)
        if not np.isfinite(values).all():
            raise EstimateError(f"{self.path}: dataset {name!r} must be finite")
        return values

    def _dataset(self, name: str) -> Any:
        import h5py

        try:
            dataset = self._file.get(name)
            if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
                raise EstimateError(f"{self.path}: dataset {name!r} is missing")
            _ = dataset.dtype, dataset.chunks  # types that NumPy does not know are noticed here
        except _H5PY_FAULTS as error:
            raise _unreadable(self.path, f"dataset {name!r}", error) from error
        _require_filters(dataset, self.path, name)
        return dataset


class DenseArray:
    """A dataset, read one leading index at a time. ``shape`` and ``dtype`` as stored."""

    def __init__(self, dataset: Any, path: Path, name: str) -> None:
        self._dataset = dataset
        self._path, self._name = path, name
        self.shape: tuple[int, ...] = dataset.shape
        self.dtype: np.dtype[Any] = dataset.dtype

    def read(self, index: int | tuple[()]) -> NDArray[Any]:
        """One frame (or with ``()`` everything). Raises ``EstimateError`` when its bytes are damaged."""
        try:
            return np.asarray(self._dataset[index])
        except _H5PY_FAULTS as error:
            raise _unreadable(self._path, f"dataset {self._name!r}[{index}]", error) from error


@contextmanager
def open_dense(path: Path) -> Iterator[DenseFile]:
    """Open an HDF5 file for reading. Raises ``FileNotFoundError(path)`` or ``EstimateError``."""
    import h5py

    with suppress(ImportError):
        __import__(_PLUGIN)  # where it is installed its filters are available from here on
    require_file(path)
    try:
        # No lock: estimates are finished files, and read-only or network mounts refuse locks.
        file = h5py.File(path, "r", locking=False)
    except _H5PY_FAULTS as error:
        raise _unreadable(path, "the file", error) from error
    with file:
        yield DenseFile(file, path)


def _require_filters(dataset: Any, path: Path, name: str) -> None:
    """Raise ``EstimateError`` that names the first filter of the dataset that cannot be decoded here."""
    from h5py import h5z

    recipe = dataset.id.get_create_plist()
    for position in range(recipe.get_nfilters()):
        number, _, _, label = recipe.get_filter(position)
        if not h5z.filter_avail(number):
            known, package = _FILTERS.get(number, (label.decode("utf-8", "replace") or "unknown", _PLUGIN))
            raise EstimateError(
                f"{path}: dataset {name!r} is stored with HDF5 filter {number} ({known}), which this "
                f"installation cannot decode; install {package}"
            )


def require_file(path: Path) -> None:
    """Raise ``FileNotFoundError`` when nothing is there, ``EstimateError`` when it is no regular file.

    A link that leads nowhere is something: somebody meant to prepare the case.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise EstimateError(f"{path}: is a link that leads nowhere") from None
        raise FileNotFoundError(str(path)) from None
    except OSError as error:
        raise EstimateError(f"{path}: cannot be read: {reason(error)}") from error
    if not S_ISREG(mode):
        raise EstimateError(f"{path}: is {describe(mode)}, not a regular file")


def _words(kinds: str) -> str:
    return " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))


def _unreadable(path: Path, what: str, error: Exception) -> EstimateError:
    if isinstance(error, EstimateError):
        return error
    text = reason(error) if isinstance(error, OSError) and error.strerror else error
    return EstimateError(f"{path}: {what} cannot be read as HDF5: {text}")
