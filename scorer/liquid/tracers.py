"""The materials of a world with those of its identity-less liquid: what metrics ask instead of
``world.materials``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from contract.constants import MAX_MESH_ID, TRACER_POINTS
from contract.names import TRACERS
from scorer.liquid import store
from scorer.liquid.cache import Bake, open_bake
from scorer.liquid.fields import read_fields
from scorer.liquid.manifest import Manifest, read_manifest
from world.materials import Material as StoredMaterial
from world.npz import ArchiveError
from world.reader import World, WorldError

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


class Material(Protocol):
    """What dynamics archives and tracers have in common."""

    @property
    def name(self) -> str: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def faces(self) -> Ints | None: ...
    @property
    def tets(self) -> Ints | None: ...
    @property
    def frames(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def pos(self) -> Floats: ...
    def at(self, frame: int) -> Floats: ...


class TracerMaterial:
    """Tracers of the liquid ``ids``: unconnected columns, NaN before birth, after leaving the solver's domain
    and past the cached timeline.
    """

    name = Path(TRACERS).stem
    faces: Ints | None = None
    tets: Ints | None = None

    def __init__(self, stored: StoredMaterial, ids: tuple[int, ...]) -> None:
        self._stored = stored
        self.ids = ids
        self.frames, self.columns = stored.frames, stored.columns

    @property
    def pos(self) -> Floats:
        """Positions float32 (F, N, 3), world metres; read-only."""
        return self._stored.pos

    def at(self, frame: int) -> Floats:
        """Positions float32 (N, 3) at a frame."""
        return self._stored.at(frame)


class Holder(Protocol):
    """What a world is asked for; one with an identity-less liquid must be a ``world.reader.World``."""

    @property
    def materials(self) -> Sequence[Any]: ...
    @property
    def liquid_ids(self) -> tuple[int, ...]: ...


_known: WeakKeyDictionary[Holder, TracerMaterial] = WeakKeyDictionary()


def materials_of(world: Holder) -> tuple[Material, ...]:
    """The dynamics archives in order of file name, then the tracers when ``solver/manifest.json`` lists
    liquid ids that no archive lists. Tracers are remembered for as long as the world is.

    Raises ``WorldError`` or another ``ValueError`` for a world that cannot be read, and an error with
    ``infrastructure`` set when the machine lacks what the extraction needs.
    """
    moving = {number for material in world.materials for number in material.ids}
    liquid = tuple(number for number in world.liquid_ids if number not in moving)
    if not liquid:
        return tuple(world.materials)
    found = _known.get(world)
    if found is None:
        assert isinstance(world, World)
        found = _known[world] = TracerMaterial(StoredMaterial(extract(world)), liquid)
    return (*world.materials, found)


def tracers(world: World) -> tuple[Floats, tuple[int, ...]]:
    """Tracers of a world's identity-less liquid: ``pos`` float32 (F, N, 3), world metres, and its mesh ids.

    Extracted once for the same content and kept outside the world; whatever ``solver/tracers.npz`` a world
    was delivered with is not looked at. Without such a liquid: no columns and no ids. Raises as
    ``materials_of``.
    """
    found = [material for material in materials_of(world) if isinstance(material, TracerMaterial)]
    if not found:
        return np.full((world.frames, 0, 3), np.nan, np.float32), ()
    return found[0].pos, found[0].ids


def extract(world: World) -> Path:
    """The archive of a world's tracers (``pos``, and ``ids`` as the manifest lists them), from the cache or
    made now. Raises as ``materials_of``.
    """
    manifest = read_manifest(world)
    with _relative(world.path):
        if manifest.liquid_ids[0] < 1 or manifest.liquid_ids[-1] > MAX_MESH_ID:
            raise ValueError(f"{world.path}: liquid ids must lie between 1 and {MAX_MESH_ID}")
        bake = open_bake(manifest, world.path, world.frames)
        sound = partial(_sound, frames=world.frames, ids=manifest.liquid_ids)
        return store.kept(store.key(world, manifest, bake), sound, partial(_build, world, manifest, bake))


@contextmanager
def _relative(root: Path) -> Iterator[None]:
    """Let faults of the world at ``root`` name its files from there, as all faults of worlds do."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        for start in (f"{root}/", f"{root}: "):
            if text.startswith(start):
                raise WorldError(text.removeprefix(start)) from error
        raise


def _sound(path: Path, frames: int, ids: tuple[int, ...]) -> bool:
    """Whether a kept archive is whole and what was stored under this name."""
    try:
        stored = StoredMaterial(path)
        return stored.ids == ids and 0 < stored.columns <= TRACER_POINTS and len(stored.pos) == frames
    except (ArchiveError, OSError):
        return False


def _build(world: World, manifest: Manifest, bake: Bake, path: Path) -> None:
    # Here, not above: compiled code is loaded by those who extract, not by everybody who asks for materials.
    from scorer.liquid import advection

    def placed() -> Iterator[Floats]:
        # In world metres; the axes of the solver's domain are the world's.
        for points in advection.tracers(fields, spacing):
            yield (points * edge + corner).astype(np.float32)

    fields = read_fields(world, manifest, bake)
    spacing, columns = advection.finest_spacing(fields)
    edge, corner = bake.voxel * manifest.metres_per_unit, np.array(manifest.domain_min)
    store.write_tracers(path, (world.frames, columns), placed(), manifest.liquid_ids)
