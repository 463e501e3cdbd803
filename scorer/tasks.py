"""What a worker does when it is called. The heavy libraries are imported here, inside the calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contract.metrics import CLOUDS, owners, type_of
from scorer import arrays
from scorer.digest import digests_of
from scorer.manifest import Entry
from scorer.messages import Checked, Dimensions, GateRecord, Measured, ReferenceFault, VideoFacts

if TYPE_CHECKING:
    from scorer.gates import Shape
    from scorer.scene import Scene
    from world.video import VideoInfo


class Tasks:
    """Calls on one worker; the selected scene is kept, so that an opened world serves several metrics."""

    def __init__(self) -> None:
        self._scene: Scene | None = None
        self._rendered: tuple[Path | None, VideoInfo | None] = (None, None)

    def inputs(self, paths: tuple[Path, ...]) -> dict[Path, str | None]:
        """Content digests of paths."""
        return digests_of(paths)

    def video_gate(
        self, entry: Entry, reference: Shape | None
    ) -> tuple[GateRecord, Dimensions | None, Shape]:
        """The video gate: its record, the render's dimensions, and the reference video's shape.

        ``reference`` is that shape if it is known already, so that each reference is decoded once for all its
        worlds.
        """
        from scorer.gates import reference_shape, video_gate

        wanted = reference if reference is not None else reference_shape(entry.video)
        record, info = video_gate(entry.render, wanted)
        self._rendered = (entry.render, info)
        size = None if info is None else (info.frames, info.height, info.width, float(info.fps))
        return record, size, wanted

    def world_gate(self, entry: Entry) -> GateRecord:
        """The world gate of an entry whose video gate is open."""
        from scorer.gates import world_gate
        from world.video import probe

        path, info = self._rendered
        if path != entry.render or info is None:  # a worker that replaces one that was lost
            info = probe(entry.render)
        return world_gate(entry.world, None if entry.sanity else entry.build_script, info)

    def select(self, entry: Entry) -> None:
        """Work on this entry from now on."""
        from scorer.scene import Scene

        self._scene = Scene(
            case=entry.case,
            world_path=entry.world,
            reference_path=entry.reference,
            annotation_path=entry.annotation,
            estimates_path=entry.estimates,
            video_path=entry.video,
        )

    def check_reference(self, entry: Entry, video: Shape | None) -> Checked:
        """Hold the case's own world to the rules. video : shape of the reference video, if it is known.

        Raises ``ReferenceFault`` when that video cannot be read.
        """
        from dataclasses import fields

        from scorer.gates import reference_shape
        from world.validation import check_reference

        assert entry.reference is not None
        shape = video if video is not None else reference_shape(entry.video)
        found = check_reference(entry.reference, shape[:3])
        if found.violations or found.render is None:
            return Checked(tuple(str(violation) for violation in found.violations))
        # Member by member: the other side need not load what reads videos.
        render = found.render
        return Checked(render=tuple(getattr(render, member.name) for member in fields(render)))

    def prepare(self, step: str, video: VideoFacts | None = None) -> dict[str, Any]:
        """Do one preparation step on the selected entry and keep its product; its detail fields.

        video : facts of the reference world's render, which spare this process decoding it. ``reference``
        failing is the operator's fault, not the submission's: ``ReferenceFault``.
        """
        scene = self._selected()
        if step == "reference":
            reference = scene.reference
            if reference is not None:
                if video is not None:
                    from world.video import VideoInfo

                    reference.video = VideoInfo(*video)
                with blaming_the_reference(scene):
                    _ = (reference.shape, reference.intrinsics, reference.ids, reference.materials)
        elif step == "registration":
            return {"alignment": plain(scene.registration.detail())}
        elif step == "sampling":
            self._require_reference_materials(scene)
            _ = scene.sampling
        elif step == "paths":
            _ = scene.paths
        else:
            raise ValueError(f"no preparation step is called {step!r}")
        return {}

    def _require_reference_materials(self, scene: Scene) -> None:
        """A reference whose liquid cannot be followed is the operator's fault too."""
        from scorer.liquid.tracers import materials_of

        if scene.reference is not None:
            with blaming_the_reference(scene):
                materials_of(scene.reference)

    def _selected(self) -> Scene:
        if self._scene is None:
            raise RuntimeError("no entry is selected")
        return self._scene

    def measure(self, type_name: str, module: str, directory: Path) -> Measured:
        """Measure one type on the selected entry; arrays are staged in ``directory``.

        Of ``uni3d`` only the clouds, which wait for its model.
        """
        metric = import_module(module)
        measurement = (metric.clouds if type_name == CLOUDS else metric.measure)(self._selected())
        detail = plain(measurement.detail)
        require_owned(type_name, detail)
        staged = arrays.stage(directory, type_name, measurement.arrays)
        return Measured(detail, staged, measurement.vouched, dict(measurement.causes))


@contextmanager
def blaming_the_reference(scene: Scene) -> Iterator[None]:
    """Errors of the block are faults of the case's reference world: ``ReferenceFault``."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ReferenceFault(f"reference world {scene.reference_path}: {error}") from error


def require_owned(type_name: str, detail: Iterable[str]) -> None:
    """Raise ``ValueError`` for a detail key that a later scoring of the type or unit would not replace."""
    kind = type_of(type_name)
    allowed = {type_name, kind.name, *kind.preparation, *kind.with_reference}
    for key in detail:
        if not owners(key) & allowed:
            raise ValueError(f"detail key {key!r} does not belong to {type_name}")


def plain(value: Any) -> Any:
    """``value`` as JSON types: numpy scalars and arrays, tuples, paths and fractions resolved; NaN stays.

    Raises ``TypeError`` for anything that JSON cannot hold.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, int | float):  # float64 is a float too: make it a plain one
        return float(value) if isinstance(value, float) else int(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"a detail value of type {type(value).__name__} cannot be written as JSON")


def _key(key: Any) -> str:
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise TypeError(f"a detail key of type {type(key).__name__} cannot be written as JSON")
    return str(key)
