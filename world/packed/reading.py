"""Reading a packed world with care: what the file declares is checked before memory is set aside for it.

Only hard links to groups and to datasets of plain numbers inside this very file are followed. Links, external
storage, virtual datasets, Python objects and text of variable length are refused, and so is a file that
claims to unpack to absurd sizes.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.errors import one_line
from contract.names import ARCHIVE_SUFFIX, CAMERA, DYNAMICS, MESHES
from world.packed.filters import load_plugins, require_filters
from world.packed.layout import (
    BLOCK,
    BOMB_RATIO,
    BOMB_SIZE,
    DEFAULT_WIDTH,
    FLAT,
    FRAMES,
    LARGEST_CHUNK,
    LARGEST_ROW,
    LENGTHS,
    MOST_ARRAYS,
    MOST_DIGITS,
    MOST_NODES,
    STACK,
    WIDTH,
    PackedError,
    Part,
    Plain,
    Series,
    Stored,
    Unit,
    check_name,
    check_size,
)

Array = npt.NDArray[Any]

_KINDS = "biuf"
_LARGEST_LIST = MOST_ARRAYS
_FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, SystemError)
"""What h5py raises at files that are not sound."""


class PackedWorld:
    """An open packed world; see :func:`open_packed`."""

    def __init__(self, file: Any, path: Path, size: int) -> None:
        self._file = file
        self._size = size
        self.path = path

    def units(self) -> list[Unit]:
        """Every file of the unpacked world, checked. Raises ``PackedError``."""
        units: list[Unit] = []
        self._walk(self._file, "", units, set())
        files = Counter(unit.target for unit in units)
        for target, count in files.items():
            levels = target.split("/")
            if count > 1 or any("/".join(levels[:depth]) in files for depth in range(1, len(levels))):
                raise PackedError(f"holds {target} twice, or a file and a directory of one name")
        if CAMERA not in files:
            raise PackedError(f"holds no {CAMERA}: it is no packed world")
        raw = sum(unit.raw for unit in units)
        if raw > BOMB_SIZE and raw > BOMB_RATIO * self._size:
            raise PackedError(f"claims to unpack {self._size} bytes to {raw}: refused")
        return units

    def parts(self, node: str) -> list[Part]:
        """The arrays of an archive, from its group. Raises ``PackedError``."""
        with _faults(node):
            return self._parts(self._file[node], node)

    def rows(self, stored: Stored) -> Iterator[Array]:
        """Consecutive blocks of rows, about ``BLOCK`` bytes each; an array without axes as one block.

        A block is valid until the next is asked for. Raises ``PackedError`` that names the rows which cannot
        be unpacked.
        """
        if not stored.shape or not stored.nbytes:
            block = np.zeros(stored.shape, stored.dtype)
            if stored.nbytes:
                with _faults(stored.path, "cannot be unpacked"):
                    self._dataset(stored).read_direct(block)
            yield block
            return
        step = max(1, BLOCK // stored.row)
        if stored.chunk and stored.band <= BLOCK:
            step = max(stored.chunk[0], step - step % stored.chunk[0])
        dataset = self._dataset(stored)
        buffer = np.zeros((min(step, stored.shape[0]), *stored.shape[1:]), stored.dtype)
        for start in range(0, stored.shape[0], step):
            count = min(step, stored.shape[0] - start)
            rows = f"rows {start} to {start + count - 1}"
            with _faults(stored.path, f"{rows} cannot be unpacked: the file is damaged there"):
                dataset.read_direct(buffer, np.s_[start : start + count], np.s_[:count])
            yield buffer[:count]

    def content(self, node: str) -> Iterator[bytes | memoryview]:
        """The bytes of a file that is packed as it is, block by block. Raises ``PackedError``."""
        with _faults(node):
            dataset = self._file[node]
        stored = _stored(dataset, node, kinds="iuSV")
        if stored.shape:
            for block in self.rows(stored):
                yield block.view(np.uint8).data
            return
        whole = np.zeros((), f"V{stored.dtype.itemsize}")
        with _faults(node, "cannot be unpacked: the file is damaged there"):
            from h5py import h5s

            dataset.id.read(h5s.ALL, h5s.ALL, whole, dataset.id.get_type())
        yield whole.tobytes()

    def _walk(self, group: Any, path: str, units: list[Unit], seen: set[Any]) -> None:
        for name, node in self._children(group, path or "/", seen):
            here = f"{path}/{name}"
            levels = here[1:].split("/")
            if len(levels) == 2 and levels[0] in (MESHES, DYNAMICS) and _is_group(node):
                parts = self._parts(node, here, seen)
                raw = sum(part.stored.nbytes for part in parts)
                memory = max((part.memory for part in parts), default=0)
                units.append(Unit("archive", here, f"{here[1:]}{ARCHIVE_SUFFIX}", raw, memory))
            elif _is_group(node):
                if len(levels) > 32:
                    raise PackedError(f"{here} is nested too deeply")
                self._walk(node, here, units, seen)
            else:
                units.append(_file_unit(node, here))

    def _children(self, group: Any, path: str, seen: set[Any]) -> Iterator[tuple[str, Any]]:
        import h5py

        with _faults(path):
            if len(group) + len(seen) > MOST_NODES:
                raise PackedError(f"holds more than {MOST_NODES} nodes")
            names = list(group)
        for name in names:
            check_name(name, path)
            with _faults(f"{path.rstrip('/')}/{name}"):
                link = group.get(name, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise PackedError(f"{path.rstrip('/')}/{name} is a link, which is never followed")
                node = group[name]
                place = h5py.h5o.get_info(node.id).addr
                if not isinstance(node, h5py.Group | h5py.Dataset):
                    raise PackedError(f"{path.rstrip('/')}/{name} is neither a group nor a dataset")
            if place in seen:
                raise PackedError(f"{path.rstrip('/')}/{name} is another node under a second name")
            seen.add(place)
            yield name, node

    def _parts(self, group: Any, path: str, seen: set[Any] | None = None) -> list[Part]:
        parts: list[Part] = []
        names: set[str] = set()
        for name, node in self._children(group, path, set() if seen is None else seen):
            here = f"{path}/{name}"
            part = (
                self._series(node, here, name, seen) if _is_group(node) else Plain(name, _stored(node, here))
            )
            new = part.members()
            if len(names) + len(new) > MOST_ARRAYS:
                raise PackedError(f"{path} holds more than {MOST_ARRAYS} arrays")
            for member in new:
                if member in names:
                    raise PackedError(f"{path} holds two arrays named {member!r}")
                names.add(member)
            parts.append(part)
        return parts

    def _series(self, group: Any, path: str, name: str, seen: set[Any] | None) -> Series:
        found = dict(self._children(group, path, set() if seen is None else seen))
        if set(found) not in ({FRAMES, STACK}, {FRAMES, FLAT, LENGTHS}):
            raise PackedError(
                f"{path} holds {', '.join(sorted(found)) or 'nothing'}; expected {FRAMES} with {STACK}, or "
                f"with {FLAT} and {LENGTHS}"
            )
        frames = _whole_numbers(found[FRAMES], f"{path}/{FRAMES}")
        width = _width(group, path)
        if len(set(frames)) != len(frames) or any(frame >= 10**width for frame in frames):
            raise PackedError(f"{path}/{FRAMES} are not different numbers of at most {width} digits")
        kind = STACK if STACK in found else FLAT
        stored = _stored(found[kind], f"{path}/{kind}")
        if not stored.shape:
            raise PackedError(f"{stored.path} has no first axis")
        if kind == STACK:
            if stored.shape[0] != len(frames):
                raise PackedError(f"{stored.path} holds {stored.shape[0]} frames, not {len(frames)}")
            return Series(name, frames, width, stored, None)
        lengths = _whole_numbers(found[LENGTHS], f"{path}/{LENGTHS}")
        if len(lengths) != len(frames) or sum(lengths) != stored.shape[0]:
            raise PackedError(
                f"{path}/{LENGTHS} give {len(lengths)} frames and {sum(lengths)} rows, not {len(frames)} and "
                f"{stored.shape[0]}"
            )
        series = Series(name, frames, width, stored, lengths)
        if series.largest > LARGEST_ROW:
            raise PackedError(f"{path}: a frame holds {series.largest} bytes; at most {LARGEST_ROW} are read")
        return series

    def _dataset(self, stored: Stored) -> Any:
        """The dataset with a cache for the chunks that are needed again for the next block."""
        import h5py

        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        if stored.chunk:
            held = min(stored.band, LARGEST_CHUNK) if stored.band > BLOCK else 0
            access.set_chunk_cache(10_007 if held else 1, held, 1.0)
        with _faults(stored.path):
            dataset = h5py.Dataset(h5py.h5d.open(self._file.id, stored.path.encode(), access))
            found = dataset.shape, dataset.dtype
        if found != (stored.shape, stored.dtype):
            raise PackedError(f"{stored.path} has changed")
        return dataset


@contextmanager
def open_packed(path: Path) -> Iterator[PackedWorld]:
    """Open a packed world for reading. Raises ``PackedError``; also when h5py is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise PackedError("h5py is not installed: pip install 'fourdcodebench[data]'") from error
    load_plugins()
    try:
        status = path.stat()
    except OSError as error:
        raise PackedError(f"cannot be opened: {error.strerror or error}") from error
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.R_OK):
        raise PackedError("is no regular file that can be read")
    with _faults("the file", "is no HDF5 file, or is damaged"):
        # No lock: the file is finished, and read-only or network mounts refuse locks.
        file = h5py.File(path, "r", locking=False)
    with file:
        yield PackedWorld(file, path, status.st_size)


@contextmanager
def _faults(where: str, what: str = "cannot be read") -> Iterator[None]:
    try:
        yield
    except PackedError:
        raise
    except MemoryError as error:
        raise PackedError(f"{where}: {what}: it asks for too much memory") from error
    except _FAULTS as error:
        reason = one_line(str(error))[:200] or type(error).__name__
        raise PackedError(f"{where}: {what} ({reason})") from error


def _is_group(node: Any) -> bool:
    import h5py

    return isinstance(node, h5py.Group)


def _stored(dataset: Any, path: str, kinds: str = _KINDS) -> Stored:
    """What a dataset declares, checked. Raises ``PackedError``."""
    import h5py

    if _is_group(dataset):
        raise PackedError(f"{path} is a group; expected a dataset")
    with _faults(path):
        recipe = dataset.id.get_create_plist()
        if recipe.get_layout() == h5py.h5d.VIRTUAL or recipe.get_external_count():
            raise PackedError(f"{path} keeps its data in other files, which are never opened")
        shape, dtype, chunk = dataset.shape, dataset.dtype, dataset.chunks
    if shape is None:
        raise PackedError(f"{path} holds no array")
    if dtype.kind not in kinds or dtype.subdtype is not None or dtype.names is not None or dtype.hasobject:
        raise PackedError(f"{path} holds {dtype}, which is no plain number type")
    stored = Stored(path, tuple(int(side) for side in shape), np.dtype(dtype.str), chunk)
    require_filters(dataset, path)
    check_size(stored)
    return stored


def _file_unit(dataset: Any, path: str) -> Unit:
    stored = _stored(dataset, path, kinds="iuSV")
    if stored.shape and (len(stored.shape) != 1 or stored.dtype.itemsize != 1 or stored.dtype.kind == "S"):
        raise PackedError(f"{path} holds {stored.dtype} {stored.shape}; expected the bytes of a file")
    if not stored.shape and stored.dtype.kind not in "SV":
        raise PackedError(f"{path} holds a number; expected the bytes of a file")
    return Unit("file", path, path[1:], stored.nbytes, stored.memory)


def _whole_numbers(dataset: Any, path: str) -> tuple[int, ...]:
    stored = _stored(dataset, path, kinds="iu")
    if len(stored.shape) != 1 or stored.shape[0] > _LARGEST_LIST:
        raise PackedError(f"{path} has shape {stored.shape}; expected a list of at most {_LARGEST_LIST}")
    with _faults(path, "cannot be unpacked: the file is damaged there"):
        values = tuple(int(value) for value in dataset[()])
    if any(value < 0 for value in values):
        raise PackedError(f"{path} holds a negative number")
    return values


def _width(group: Any, path: str) -> int:
    with _faults(path):
        if WIDTH not in group.attrs:
            return DEFAULT_WIDTH
        attribute = group.attrs.get_id(WIDTH)
        if attribute.shape != () or attribute.dtype.kind not in "iu":
            raise PackedError(f"{path}: attribute {WIDTH} is no whole number")
        width = int(group.attrs[WIDTH])
    if not 1 <= width <= MOST_DIGITS:
        raise PackedError(f"{path}: attribute {WIDTH} is {width}; expected 1 to {MOST_DIGITS}")
    return width
