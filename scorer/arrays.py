"""Array files of the results: one file a group, staged under another name until its score is written.

Formats: groups ``flow`` and ``raster_depth`` are HDF5, one frame a chunk; feature groups are plain ``.npz``;
all others compressed ``.npz``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from contract.metrics import CLOUDS
from contract.record import replacing, sync_directory

STAGED = ".staged"
TEMPORARY = ".tmp"

HDF5_GROUPS = frozenset({"flow", "raster_depth"})
PLAIN_GROUPS = frozenset({"uni3d", "sampling"})
PLAIN_PREFIXES = ("embeddings_", "geophys_")

GROUPS: Mapping[str, tuple[str, ...]] = {
    "dynamic_iou": ("dynamic",),
    "scene_3d": ("scene",),
    "trajectory": ("trajectory",),
    "dynamics": ("dynamics",),
    "occupancy": ("occupancy",),
    "interpenetration": ("interpenetration",),
    "mesh": ("mesh",),
    "uni3d": ("uni3d_clouds", "uni3d"),
    "flow": ("flow",),
    "track2d": ("track2d",),
    "semantic": ("embeddings_dinov3", "embeddings_tips"),
    "geophys": ("geophys_dinov3",),
    "depth": ("raster_depth",),
}
"""Groups that each type may write."""

UNIT_GROUPS: Mapping[str, tuple[str, ...]] = {
    **GROUPS,
    "semantic_dinov3": ("embeddings_dinov3",),
    "semantic_tips": ("embeddings_tips",),
    "geophys_dinov3": ("geophys_dinov3",),
    CLOUDS: ("uni3d_clouds",),
}
"""Groups of a type, or of a unit that is only a part of one."""


def file_name(group: str) -> str:
    """``<group>.h5`` or ``<group>.npz``."""
    return f"{group}.h5" if group in HDF5_GROUPS else f"{group}.npz"


def files_of(types: Iterable[str]) -> list[str]:
    """Names of every array file that the types or units own."""
    return [file_name(group) for name in types for group in UNIT_GROUPS[name]]


def stage(directory: Path, type_name: str, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Write each group beside its destination and return ``{final name: staged name}``.

    Raises ``ValueError`` for a group that the type or unit does not own and for arrays of Python objects
    (which only a pickle could hold).
    """
    import numpy as np

    staged = {}
    for group, members in arrays.items():
        if group not in UNIT_GROUPS[type_name]:
            raise ValueError(f"array group {group!r} does not belong to {type_name}")
        ready = {name: np.asarray(value) for name, value in members.items()}
        for name, array in ready.items():
            if array.dtype.hasobject:
                raise ValueError(f"{group}/{name} holds Python objects")
        final = file_name(group)
        target = directory / f".{final}{STAGED}"
        with replacing(target) as stream:
            if group in HDF5_GROUPS:
                _write_hdf5(stream, ready)
            else:
                write_npz(stream, ready, compressed=not _plain(group))
        staged[final] = target.name
    return staged


def publish(directory: Path, type_name: str, staged: Mapping[str, str], keep: Collection[str] = ()) -> None:
    """Give the staged files their names, and remove files of the type that this scoring did not write.

    keep : files of the type that an earlier step of this scoring has published.
    """
    for final, name in staged.items():
        (directory / name).replace(directory / final)
    discard(directory, [name for name in files_of([type_name]) if name not in staged and name not in keep])
    sync_directory(directory)


def discard(directory: Path, files: Iterable[str]) -> None:
    """Remove files that may be absent."""
    for name in files:
        with suppress(FileNotFoundError):
            (directory / name).unlink()


def sweep(directory: Path) -> None:
    """Remove what a killed scorer left half written. Only under the directory's lock."""
    for path in directory.iterdir():
        if path.name.startswith(".") and path.name.endswith((STAGED, TEMPORARY)):
            with suppress(OSError):
                path.unlink()


def _plain(group: str) -> bool:
    return group in PLAIN_GROUPS or group.startswith(PLAIN_PREFIXES)


def write_npz(stream: IO[bytes], members: Mapping[str, Any], *, compressed: bool) -> None:
    """An ``.npz`` archive; any member name will do, unlike with ``numpy.savez``, never a pickle."""
    import zipfile

    from numpy.lib import format as npy

    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, allowZip64=True) as archive:
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _write_hdf5(stream: IO[bytes], members: Mapping[str, Any]) -> None:
    """Root datasets; rank 3 and more in chunks of one frame with shuffle and LZF, lower ranks contiguous."""
    from scorer.dense import writing

    with writing(stream) as file:
        for name, array in members.items():
            file.put(name, array)
