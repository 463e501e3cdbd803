"""Write a world: staged beside its destination, checked as it goes, renamed into place at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from contract.constants import MAX_MESH_FRAMES, MAX_MESH_ID
from contract.names import (
    CAMERA,
    DYNAMICS,
    FACES_KEY,
    IDS_KEY,
    MESHES,
    POS_KEY,
    RENDER,
    TETS_KEY,
    faces_key,
    vertices_key,
)
from world.camera import write_camera
from world.npz import write_archive
from world.video import Image, write_video


class WorldWriter:
    """Collects one world and puts it at ``path`` when the ``with`` block ends well; otherwise leaves nothing.

    An existing world at ``path`` is replaced only then. Arguments are checked where they are given, so that a
    writer's mistake shows at its own line and not in the checker.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        frames: int,
        height: int,
        width: int,
        fps: Fraction | int | float,
        intrinsics: npt.ArrayLike,
        extrinsic: npt.ArrayLike,
    ) -> None:
        """frames, height, width, fps : facts of the video that the world reconstructs.

        intrinsics (3, 3) in pixels, extrinsic (4, 4) camera-to-world in metres.
        """
        if not 1 <= frames <= MAX_MESH_FRAMES:
            raise ValueError(f"a world has 1 to {MAX_MESH_FRAMES} frames, not {frames}")
        self.path = Path(path)
        self.frames, self.height, self.width, self.fps = frames, height, width, Fraction(fps)
        self._camera = (intrinsics, extrinsic)
        self._ids: set[int] = set()
        self._rendered = False
        self._staging: Path | None = None

    def __enter__(self) -> WorldWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        name = self.path.name
        staging = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".partial", dir=self.path.parent))
        staging.chmod(0o755)
        self._staging = staging
        try:
            (staging / MESHES).mkdir()
            (staging / DYNAMICS).mkdir()
            write_camera(staging / CAMERA, *self._camera)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self._finish()
        finally:
            self._discard()

    def mesh(
        self,
        number: int,
        vertices: Sequence[npt.ArrayLike],
        faces: Sequence[npt.ArrayLike] | npt.ArrayLike,
        *,
        first: int = 0,
    ) -> None:
        """Write the archive of object ``number``.

        Parameters
        ----------
        vertices : one (V, 3) array of world metres a frame, for consecutive frames from ``first`` on.
        faces : one (T, 3) integer array for all frames, or one a frame.
        """
        if not 1 <= number <= MAX_MESH_ID or number in self._ids:
            raise ValueError(f"mesh id {number} is not in 1 … {MAX_MESH_ID} or is there already")
        count = len(vertices)
        if count == 0 or first < 0 or first + count > self.frames:
            raise ValueError(f"mesh {number}: frames {first} to {first + count - 1} of {self.frames}")
        shared = _shared_faces(faces)
        if shared is None and len(faces) != count:  # type: ignore[arg-type]
            given = len(faces)  # type: ignore[arg-type]
            raise ValueError(f"mesh {number}: {count} frames of vertices, {given} of faces")
        arrays: dict[str, npt.NDArray[Any]] = {}
        for index, points in enumerate(vertices):
            where = f"mesh {number}, frame {first + index}"
            block = _points(points, where)
            cells = shared if shared is not None else faces[index]  # type: ignore[index]
            arrays[vertices_key(first + index)] = block
            arrays[faces_key(first + index)] = _cells(cells, 3, len(block), where)
        write_archive(self._place(MESHES) / f"{number}.npz", arrays)
        self._ids.add(number)

    def dynamics(
        self,
        name: str,
        pos: npt.ArrayLike,
        ids: Iterable[int],
        faces: npt.ArrayLike | None = None,
        tets: npt.ArrayLike | None = None,
    ) -> None:
        """Write ``dynamics/<name>.npz``.

        Parameters
        ----------
        pos : (F, N, 3) world metres; NaN in all three components while a column is not alive.
        ids : mesh ids that display this material; their meshes are written before.
        faces, tets : (T, 3) or (K, 4) column indices, at most one of the two.
        """
        block = np.ascontiguousarray(pos, np.float32)
        if block.ndim != 3 or block.shape[0] != self.frames or block.shape[2] != 3:
            raise ValueError(f"dynamics {name}: pos has shape {block.shape}, expected ({self.frames}, N, 3)")
        _check_lifetimes(block, name)
        listed = np.array(sorted(set(ids)), np.uint16)
        missing = sorted(set(listed.tolist()) - self._ids)
        if listed.size == 0 or missing:
            raise ValueError(f"dynamics {name}: no mesh for ids {missing or 'none given'}")
        if faces is not None and tets is not None:
            raise ValueError(f"dynamics {name}: faces and tets exclude each other")
        arrays: dict[str, npt.NDArray[Any]] = {POS_KEY: block, IDS_KEY: listed}
        if faces is not None:
            arrays[FACES_KEY] = _cells(faces, 3, block.shape[1], f"dynamics {name}")
        if tets is not None:
            arrays[TETS_KEY] = _cells(tets, 4, block.shape[1], f"dynamics {name}")
        write_archive(self._place(DYNAMICS) / f"{name}.npz", arrays)

    def render(self, images: Iterable[Image], *, crf: int = 18) -> None:
        """Encode ``render.mp4`` from uint8 (H, W, 3) RGB frames, F of them."""
        count = write_video(self._place("") / RENDER, self._sized(images), self.fps, crf=crf)
        if count != self.frames:
            raise ValueError(f"render: {count} frames, expected {self.frames}")
        self._rendered = True

    def render_file(self, video: Path) -> None:
        """Take a finished video as ``render.mp4``, byte for byte."""
        shutil.copyfile(video, self._place("") / RENDER)
        self._rendered = True

    def _sized(self, images: Iterable[Image]) -> Iterator[Image]:
        size = (self.height, self.width, 3)
        for image in images:
            if image.shape != size:
                raise ValueError(f"render: a frame is {image.shape}, expected {size}")
            yield image

    def _place(self, name: str) -> Path:
        if self._staging is None:
            raise RuntimeError("a WorldWriter is used inside its with block")
        return self._staging / name

    def _finish(self) -> None:
        if not self._rendered:
            raise ValueError("a world needs its render")
        staging = self._place("")
        if self.path.exists():
            # rename cannot replace a directory that holds files: the old world steps aside first.
            old = staging.with_suffix(".old")
            self.path.rename(old)
            staging.rename(self.path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            staging.rename(self.path)
        self._staging = None

    def _discard(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging = None


def _shared_faces(faces: Sequence[npt.ArrayLike] | npt.ArrayLike) -> npt.NDArray[Any] | None:
    if isinstance(faces, np.ndarray) and faces.ndim == 2:
        return faces
    return None


def _points(points: npt.ArrayLike, where: str) -> npt.NDArray[np.float32]:
    block = np.ascontiguousarray(points, np.float32)
    if block.size == 0:
        block = block.reshape(0, 3)
    if block.ndim != 2 or block.shape[1] != 3 or not np.isfinite(block).all():
        raise ValueError(f"{where}: vertices must be finite and (V, 3), not {block.shape}")
    return block


def _cells(cells: npt.ArrayLike, width: int, points: int, where: str) -> npt.NDArray[np.int32]:
    block = np.asarray(cells)
    if block.size == 0:
        return np.zeros((0, width), np.int32)
    if block.ndim != 2 or block.shape[1] != width or block.dtype.kind not in "iu":
        found = f"{block.dtype} {block.shape}"
        raise ValueError(f"{where}: indices must be integers of shape (·, {width}), not {found}")
    if int(block.min()) < 0 or int(block.max()) >= points:
        raise ValueError(f"{where}: an index lies outside the {points} points")
    return np.ascontiguousarray(block, np.int32)


def _check_lifetimes(pos: npt.NDArray[np.float32], name: str) -> None:
    alive = np.isfinite(pos).all(axis=2)
    if not (alive | np.isnan(pos).all(axis=2)).all():
        raise ValueError(f"dynamics {name}: a point is neither finite nor NaN in all three components")
    padded = np.zeros((alive.shape[0] + 1, alive.shape[1]), bool)
    padded[1:] = alive
    births = (padded[1:] & ~padded[:-1]).sum(axis=0)
    if (births != 1).any():
        column = int(np.flatnonzero(births != 1)[0])
        raise ValueError(f"dynamics {name}: column {column} is not alive in one contiguous interval")
