"""Every check of a world, in the published order; the same for the agent's checker and the scorer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from contract.names import DYNAMICS, MESHES, RENDER
from world.validation.camera import camera_advice, check_camera
from world.validation.dynamics import DynamicsListing, DynamicsReport, check_dynamics, list_dynamics
from world.validation.files import mode_of
from world.validation.hints import (
    NO_TRIANGLE,
    dynamics_advice,
    has_no_triangle,
    mesh_advice,
    world_advice,
)
from world.validation.links import check_links
from world.validation.meshes import MeshReport, check_mesh, list_meshes
from world.validation.solver import SolverReport, check_solver
from world.validation.video import check_input, check_video, video_advice
from world.validation.violation import Violation
from world.video import VideoInfo

_MOST_THREADS = 4
"""Unpacking runs without Python's lock; beyond a few threads the disk is the limit."""


@dataclass
class Examination:
    """Outcome of one pass over a world: broken rules, and advice that does not change the verdict."""

    violations: list[Violation] = field(default_factory=list)
    advice: list[Violation] = field(default_factory=list)
    render: VideoInfo | None = None


def check_world(
    path: Path | str,
    *,
    scorer: bool = False,
    video: Path | str | VideoInfo | None = None,
    render: VideoInfo | None = None,
) -> list[Violation]:
    """Every broken rule of the world at ``path``, in the published order; empty when it is sound.

    Parameters
    ----------
    scorer : apply the scorer's variant: mesh vertices are cast to float32, some triangle is required, the
        solver cache must lie in the world and be baked completely; links end the examination.
    video : input video to compare the render with (field ``input``); None compares with nothing.
    render : facts of the render, when it has been decoded already.

    One violation stands for each mesh archive; its text names the archive's further faults. Memory stays at
    some megabytes per thread whatever the archives claim. Raises ``UserError`` when ``video`` cannot be read,
    and nothing for faults of the world.
    """
    return examine(path, scorer=scorer, video=video, render=render).violations


def advice(path: Path | str, *, render: VideoInfo | None = None) -> list[Violation]:
    """What the rules let pass and still hurts (see :mod:`world.validation.hints`)."""
    return examine(path, render=render).advice


def examine(
    path: Path | str,
    *,
    scorer: bool = False,
    video: Path | str | VideoInfo | None = None,
    render: VideoInfo | None = None,
    links: bool = True,
    bare: bool = False,
) -> Examination:
    """Violations and advice of one pass; parameters as :func:`check_world`.

    links : look for symbolic links. bare : a missing ``dynamics/`` counts as an empty one.
    """
    world = Path(path)
    found = Examination()
    if links:
        found.violations += check_links(world)
        if scorer and found.violations:
            return found
    camera_faults, camera = check_camera(world)
    video_faults, found.render = check_video(world, render)
    found.violations += camera_faults + video_faults
    if found.render is not None:
        found.advice += video_advice(found.render)
        if video is not None:
            expected = video if isinstance(video, VideoInfo) else Path(video)
            found.violations += check_input(found.render, expected)
    if camera is not None:
        size = None if found.render is None else (found.render.height, found.render.width)
        found.advice += camera_advice(camera, size)
    _check_geometry(found, world, scorer, bare)
    return found


def check_reference(path: Path | str, video: VideoInfo | tuple[int, int, int]) -> Examination:
    """Every fault of a case's own world that would spoil scores; its facts come along, so that nobody has to
    decode its render again.

    The rules are the scorer's for submissions, but for what does no harm in data of the benchmark's own:
    links (stores of data sets are full of them), a ``dynamics/`` that an unpacker left out because it was
    empty, and another frame rate. video : the reference video or its (F, H, W), which the world's render must
    have.
    """
    shape = video.shape if isinstance(video, VideoInfo) else video
    found = examine(path, scorer=True, links=False, bare=True)
    if found.render is not None and found.render.shape != shape:
        frames, height, width = found.render.shape
        text = (
            f"has {frames} frames of {width}x{height}; the reference video has {shape[0]} of "
            f"{shape[2]}x{shape[1]}"
        )
        # First: a wrong count of frames makes the other files look wrong as well.
        found.violations.insert(0, Violation(RENDER, "input", text))
    return found


def _check_geometry(found: Examination, world: Path, scorer: bool, bare: bool) -> None:
    frames = None if found.render is None else found.render.frames
    meshes, dynamics = list_meshes(world), list_dynamics(world)
    if bare and mode_of(world / DYNAMICS) is None:
        dynamics = DynamicsListing([])
    with ThreadPoolExecutor(_threads(), thread_name_prefix="validation") as pool:
        look = partial(check_mesh, world, frames=frames, scorer=scorer)
        mesh_jobs = [pool.submit(look, mesh) for mesh in meshes.files]
        watch = partial(check_dynamics, world, frames=frames, declared=meshes.declared)
        dynamics_jobs = [pool.submit(watch, file) for file in dynamics.files or ()]
        try:
            mesh_reports = [job.result() for job in mesh_jobs]
            dynamics_reports = [job.result() for job in dynamics_jobs]
        except BaseException:
            # Ctrl-C must not wait for the archives that nobody has begun to read.
            pool.shutdown(wait=False, cancel_futures=True)
            raise

    faults = dict(meshes.faults)
    faults |= {report.mesh.file: report.violation for report in mesh_reports if report.violation is not None}
    found.violations += [faults[name] for name in sorted(faults)]
    no_triangle = has_no_triangle(mesh_reports)
    if no_triangle and scorer:
        found.violations.append(Violation(MESHES, "faces", NO_TRIANGLE))
    found.advice += mesh_advice(meshes, mesh_reports, no_triangle=no_triangle and not scorer)

    if dynamics.fault is not None:
        found.violations.append(dynamics.fault)
    for report in dynamics_reports:
        found.violations += report.violations
    solver = _check_motion(found, world, mesh_reports, dynamics_reports, dynamics.files is not None, scorer)
    found.advice += dynamics_advice(dynamics, dynamics_reports, solver.liquid_ids)
    found.advice += solver.advice + world_advice(world, frames)


def _check_motion(
    found: Examination,
    world: Path,
    meshes: Sequence[MeshReport],
    dynamics: Sequence[DynamicsReport],
    present: bool,
    scorer: bool,
) -> SolverReport:
    """Solver and static rule. They need to know all that moves; without it their findings are only advice."""
    frames = None if found.render is None else found.render.frames
    sound = {report.mesh.id: report for report in meshes if report.violation is None}
    moving = frozenset().union(*(report.ids for report in dynamics if report.ids is not None))
    solver = check_solver(world, moving, sound.keys(), frames=frames, scorer=scorer)
    if not present or any(report.ids is None for report in dynamics):
        solver.advice = solver.violations + solver.advice
        solver.violations = []
        return solver
    found.violations += solver.violations
    for identifier in sorted(sound.keys() - moving - solver.liquid_ids):
        change = sound[identifier].change
        if change is not None:
            text = (
                f"differs from frame {change.first:04d}, but no dynamics archive lists id {identifier}: "
                "write its motion to dynamics/, or keep the mesh still"
            )
            found.violations.append(Violation(f"{MESHES}/{identifier}.npz", change.member, text))
    return solver


def _threads() -> int:
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0))))
