"""The prepare stage's files about the reference video, read defensively and one frame at a time.

Everything is checked against the file's own declarations before data is read: names, types, shapes, and that
this installation can decode every filter in use. Layout: protocol 4dcb-1, estimates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.names import DEPTH, FLOW, TRACKS
from world.npz import Archive, ArchiveError

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

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
            raise EstimateError(f"{self.path}: dataset {name!r} holds {held}; expected rank {rank}")
        return DenseArray(dataset, self.path, name)

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
        except (OSError, RuntimeError, KeyError) as error:
            raise _unreadable(self.path, f"dataset {name!r}", error) from error
        if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
            raise EstimateError(f"{self.path}: dataset {name!r} is missing")
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
        except (OSError, RuntimeError) as error:
            raise _unreadable(self._path, f"dataset {self._name!r}[{index}]", error) from error


@contextmanager
def open_dense(path: Path) -> Iterator[DenseFile]:
    """Open an HDF5 file for reading. Raises ``FileNotFoundError(path)`` or ``EstimateError``."""
    import h5py

    with suppress(ImportError):
        __import__(_PLUGIN)  # where it is installed its filters are available from here on
    if not path.is_file():
        raise FileNotFoundError(str(path))
    try:
        # No lock: estimates are finished files, and read-only or network mounts refuse locks.
        file = h5py.File(path, "r", locking=False)
    except OSError as error:
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


def _unreadable(path: Path, what: str, error: Exception) -> Exception:
    """The error to raise; the operating system's own errors (memory, disk) stay what they are."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return EstimateError(f"{path}: {what} cannot be read as HDF5: {error}")


class FlowEstimate:
    """``flow.h5``: optical flow between consecutive sampled frames.

    flow : stored shape (n, H, W, 2). valid : stored shape (n, H, W). stride : frames between samples.
    """

    def __init__(self, file: DenseFile) -> None:
        self._flow = file.array("flow", rank=4, kinds="f")
        self._valid = file.array("valid", rank=3, kinds="biu")
        self.flow_shape, self.valid_shape = self._flow.shape, self._valid.shape
        self.stride = max(1, int(file.numbers("stride")))

    def step(self, index: int) -> tuple[Floats, Mask]:
        """Flow float32 (H, W, 2) in pixels and validity bool (H, W) of one step."""
        return self._flow.read(index).astype(np.float32), self._valid.read(index) != 0


class DepthEstimate:
    """``depth.h5``: disparity on the model's own grid, larger is nearer.

    shape : (F, H, W) of the video. stored : (n, h, w). stride : frames between samples. fps : of the video.
    """

    def __init__(self, file: DenseFile) -> None:
        self._disparity = file.array("disparity", rank=3, kinds="f")
        self.stored = self._disparity.shape
        frames, height, width = file.numbers("shape", (3,))
        self.shape = (int(frames), int(height), int(width))
        self.stride = max(1, int(file.numbers("stride")))
        self.fps = float(file.numbers("fps"))
        if 0 in self.stored[1:]:
            raise EstimateError(f"{file.path}: dataset 'disparity' of shape {self.stored} has no pixels")

    def disparity(self, index: int) -> Floats:
        """One map float32 (h, w)."""
        return self._disparity.read(index).astype(np.float32)


@dataclass(frozen=True)
class TrackEstimate:
    """``tracks.npz``: tracked points of the video.

    tracks : float32 (Q, F', 2), pixels. visible : bool (Q, F'). queries : float32 (·, 3), ``(0, x, y)``.
    on_mask : bool (Q,). stride : frames between samples.
    """

    tracks: Floats
    visible: Mask
    queries: Floats
    on_mask: Mask
    stride: int


@contextmanager
def flow_estimate(directory: Path) -> Iterator[FlowEstimate]:
    """Open ``flow.h5``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with open_dense(directory / FLOW) as file:
        yield FlowEstimate(file)


@contextmanager
def depth_estimate(directory: Path) -> Iterator[DepthEstimate]:
    """Open ``depth.h5``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    with open_dense(directory / DEPTH) as file:
        yield DepthEstimate(file)


def track_estimate(directory: Path) -> TrackEstimate:
    """Read ``tracks.npz``. Raises ``FileNotFoundError`` or ``EstimateError``."""
    path = directory / TRACKS
    if not path.is_file():
        raise FileNotFoundError(str(path))
    try:
        return _read_tracks(path)
    except ArchiveError as error:
        raise EstimateError(f"{path}: {error}") from error


def _read_tracks(path: Path) -> TrackEstimate:
    with Archive.open(path) as archive:

        def read(name: str, kinds: str, shape: Sequence[int | None]) -> NDArray[Any]:
            header = archive.header(name)
            fits = len(header.shape) == len(shape) and all(
                want in (None, have) for want, have in zip(shape, header.shape, strict=True)
            )
            if not fits or header.dtype.kind not in kinds:
                expected = "(" + ", ".join("n" if side is None else str(side) for side in shape) + ")"
                raise EstimateError(
                    f"{path}: {name!r} holds {header.dtype} of shape {header.shape}; expected {expected}"
                )
            return archive.read(name)

        tracks = read("tracks", "f", (None, None, 2)).astype(np.float32)
        count, frames = tracks.shape[:2]
        return TrackEstimate(
            tracks=tracks,
            visible=read("visible", "biu", (count, frames)) != 0,
            queries=read("queries", "fiu", (None, 3)).astype(np.float32),
            on_mask=read("on_mask", "biu", (count,)) != 0,
            stride=max(1, int(read("stride", "iu", ()))),
        )
