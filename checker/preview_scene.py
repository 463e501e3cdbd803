"""What the preview draws: one frame of the render, the camera, and the triangles of that frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from contract.errors import UserError
from contract.names import ARCHIVE_SUFFIX, MESHES, RENDER, faces_key, vertices_key
from world.npz import Archive, ArchiveError
from world.validation.camera import Camera, check_camera
from world.validation.files import is_directory, is_file, names_in
from world.validation.meshes import index_fault, mesh_id
from world.video import VideoError, frames

_NEXT = "python -m checker lists everything that is wrong"


@dataclass(frozen=True)
class Part:
    """One object: vertices float32 (V, 3) in world metres, faces int32 (T, 3)."""

    id: int
    vertices: npt.NDArray[np.float32]
    faces: npt.NDArray[np.int32]


@dataclass(frozen=True)
class PreviewScene:
    """Frame of the render, uint8 (H, W, 3); the camera; the objects with a face at that frame."""

    image: npt.NDArray[np.uint8]
    camera: Camera
    parts: list[Part]


def load_scene(world: Path, frame: int) -> PreviewScene:
    """Read what is needed to draw ``frame``. Raises ``UserError`` for the first thing that is wrong."""
    faults, camera = check_camera(world)
    if camera is None:
        raise UserError(str(faults[0]), where=world, next_step=_NEXT)
    return PreviewScene(_image(world / RENDER, frame), camera, _parts(world / MESHES, frame))


def _image(path: Path, frame: int) -> npt.NDArray[np.uint8]:
    if not is_file(path):
        raise UserError("is required to draw beside", where=path, next_step=_NEXT)
    count = 0
    try:
        for image in frames(path):
            if count == frame:
                return image
            count += 1
    except (VideoError, OSError) as error:
        raise UserError(f"frame {frame} could not be decoded: {error}", where=path) from error
    raise UserError(f"has {count} frames, there is no frame {frame}", where=path)


def _parts(directory: Path, frame: int) -> list[Part]:
    """All archives in order of name; those without this frame or without a face at it are left out."""
    if not is_directory(directory):
        raise UserError("is required: a directory of mesh archives", where=directory, next_step=_NEXT)
    parts = []
    for name in names_in(directory):
        if not name.endswith(ARCHIVE_SUFFIX):
            continue
        identifier = mesh_id(name)
        if identifier is None:
            raise UserError("is no mesh id", where=directory / name, next_step=_NEXT)
        part = _part(directory / name, identifier, frame)
        if part is not None:
            parts.append(part)
    return parts


def _part(path: Path, identifier: int, frame: int) -> Part | None:
    vertices_name, faces_name = vertices_key(frame), faces_key(frame)
    try:
        with Archive.open(path) as archive:
            if vertices_name not in archive and faces_name not in archive:
                return None
            for name, dtype in ((vertices_name, np.float32), (faces_name, np.int32)):
                header = archive.header(name)
                if header.dtype != dtype or len(header.shape) != 2 or header.shape[1] != 3:
                    text = f"{name} is {header.dtype} {header.shape}, expected {np.dtype(dtype)} (n, 3)"
                    raise UserError(text, where=path, next_step=_NEXT)
            vertices, faces = archive.read(vertices_name), archive.read(faces_name)
    except (ArchiveError, OSError, MemoryError) as error:
        raise UserError(str(error), where=path, next_step=_NEXT) from error
    fault = index_fault(faces, len(vertices), "vertices")
    if fault:
        raise UserError(f"{faces_name} {fault}", where=path, next_step=_NEXT)
    if not np.isfinite(vertices).all():
        raise UserError(f"{vertices_name} must be finite", where=path, next_step=_NEXT)
    return Part(identifier, vertices, faces) if len(faces) else None
