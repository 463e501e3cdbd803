"""One mesh archive, frame by frame: only an index of it stays in memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.names import ARCHIVE_SUFFIX, faces_key, vertices_key
from world.npz import Archive, ArchiveError, naming

Vertices = npt.NDArray[np.float32]
Faces = npt.NDArray[np.int32]
Mesh = tuple[Vertices, Faces]

_MEMBER = re.compile(r"(vertices|faces)_([0-9]{4})")


def empty_mesh() -> Mesh:
    """No geometry: arrays of shape (0, 3)."""
    return np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32)


def mesh_id(name: str) -> int | None:
    """The id that an archive's file name stands for, or None when it is no mesh archive's name.

    Any decimal digits count, as they always have, with zeros before them or not.
    """
    stem = name.removesuffix(ARCHIVE_SUFFIX)
    if stem == name or not stem.isdecimal():
        return None
    return int(stem) or None


def member_frame(name: str) -> tuple[str, int] | None:
    """``("vertices" | "faces", frame)`` of a member name, or None when it is neither."""
    match = _MEMBER.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class MeshArchive:
    """Reads ``meshes/<id>.npz`` one frame at a time.

    frames : range of frames that the archive covers (its lifetime). name : how messages call it.
    """

    def __init__(self, path: Path, name: str = "") -> None:
        """Index the archive. Raises ``ArchiveError`` when it is none or its frames do not pair up."""
        self.path = path
        self.name = name or path.name
        with naming(self.name):
            self.frames = self._lifetime()

    def _lifetime(self) -> range:
        with Archive.open(self.path) as archive:
            found: dict[str, set[int]] = {"vertices": set(), "faces": set()}
            for name in archive.names:
                parsed = member_frame(name)
                if parsed is None:
                    raise ArchiveError(f"member {name!r} is not a frame's vertices or faces")
                found[parsed[0]].add(parsed[1])
        frames = sorted(found["vertices"])
        if not frames or found["vertices"] != found["faces"]:
            raise ArchiveError("vertices and faces must cover the same frames, at least one")
        if frames != list(range(frames[0], frames[-1] + 1)):
            raise ArchiveError("frames must be one contiguous interval")
        return range(frames[0], frames[-1] + 1)

    def open(self) -> Archive:
        """The opened archive, for :meth:`read`. Raises ``ArchiveError``."""
        with naming(self.name):
            return Archive.open(self.path)

    def read(self, archive: Archive, frame: int) -> Mesh:
        """Vertices float32 (V, 3) and faces int32 (T, 3) of a frame of the lifetime, from the opened archive.

        Other real vertex types are cast to float32. Raises ``ArchiveError`` on a wrong type, shape or index.
        """
        where = f"{self.name}: frame {frame:04d}"
        with naming(self.name):
            vertices = archive.read(vertices_key(frame))
            faces = archive.read(faces_key(frame))
        if vertices.dtype.kind not in "fiu" or vertices.ndim != 2 or vertices.shape[1] != 3:
            raise ArchiveError(
                f"{where}: vertices are {vertices.dtype} {vertices.shape}, expected float32 (V, 3)"
            )
        if faces.dtype != np.int32 or faces.ndim != 2 or faces.shape[1] != 3:
            raise ArchiveError(f"{where}: faces are {faces.dtype} {faces.shape}, expected int32 (T, 3)")
        vertices = np.ascontiguousarray(vertices, dtype=np.float32)
        if not np.isfinite(vertices).all():
            raise ArchiveError(f"{where}: vertices must be finite")
        if faces.size and (int(faces.min()) < 0 or int(faces.max()) >= len(vertices)):
            raise ArchiveError(f"{where}: a face index lies outside the {len(vertices)} vertices")
        return vertices, np.ascontiguousarray(faces)
