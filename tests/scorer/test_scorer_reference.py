"""A reference that is not sound gives no number and costs no submission anything."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from base_world import FRAMES, HEIGHT, WIDTH, edit, load
from scorer_lab import CASE, Lab

from scorer.messages import Checked
from scorer.reference import References
from scorer.worker import CallFailed, CallTimedOut, WorkerLost
from world.video import write_video

OTHER = f"runs/{CASE}/toy-model-high/2"


@pytest.fixture
def compared(lab: Lab) -> Lab:
    """Two metrics that rest on the reference world, and one that does not; two submissions."""
    for name in ("dynamic_iou", "scene_3d", "mesh"):
        lab.metric(name)
    lab.add_run()
    lab.add_run(OTHER)
    shutil.copytree(lab.world, lab.root / "data" / CASE / "world")
    return lab


def dead_column(world: Path) -> None:
    pos = load(world / "dynamics/a.npz")["pos"].copy()
    pos[:, 2] = np.nan
    edit(world / "dynamics/a.npz", {"pos": pos})


def one_frame_short(world: Path) -> None:
    write_video(world / "render.mp4", [np.zeros((HEIGHT, WIDTH, 3), np.uint8)] * (FRAMES - 1), 24)


def other_frame_count(world: Path) -> None:
    edit(world / "dynamics/a.npz", {"pos": load(world / "dynamics/a.npz")["pos"][:-1]})


def member_missing(world: Path) -> None:
    edit(world / "meshes/2.npz", remove=("faces_0001",))


def not_finite(world: Path) -> None:
    vertices = load(world / "meshes/2.npz")["vertices_0002"].copy()
    vertices[0] = np.inf
    edit(world / "meshes/2.npz", {"vertices_0002": vertices})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (dead_column, ("dynamics/a.npz", "pos[:,2]", "never finite")),
        (one_frame_short, ("render.mp4", "3 frames", "4 of 64x48")),
        (other_frame_count, ("dynamics/a.npz", "3 frames")),
        (member_missing, ("meshes/2.npz", "frame 0001", "lacks faces_0001")),
        (not_finite, ("meshes/2.npz", "vertices_0002", "finite")),
    ],
)
def test_it_is_the_operators_fault(
    compared: Lab, spoil: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    world = compared.root / "data" / CASE / "world"
    spoil(world)
    done = compared.score("--jobs", "2")
    assert done.returncode == 1
    for run in [entry["out"] for entry in compared.entries]:
        assert "dynamic_iou" not in compared.reward(run)
        assert "scene_3d" not in compared.reward(run)
        assert compared.reward(run)["mesh_watertight"] == 0.5
        noted = compared.detail(run)["infrastructure"]
        assert set(noted) == {"dynamic_iou", "scene_3d"}
        for text in noted.values():
            for word in (str(world), *words):
                assert word in text
    assert sorted(compared.calls) == ["mesh", "mesh"]

    shutil.rmtree(world)
    shutil.copytree(compared.world, world)
    assert compared.score().returncode == 0
    assert compared.reward()["dynamic_iou"] == compared.reward()["scene_3d"] == 0.5
    assert "infrastructure" not in compared.detail()


def test_the_facts_of_the_render_come_along(compared: Lab) -> None:
    compared.metric(
        "dynamic_iou",
        """
        import dataclasses, world.video
        def probe(path):
            raise AssertionError(f"{path} is decoded again")
        world.reader.probe = probe
        assert scene.reference.shape == (4, 48, 64)
        assert scene.reference.fps == 24
        return fine
        """,
    )
    done = compared.score("--type", "dynamic_iou")
    assert done.returncode == 0, done.stderr


def test_a_reference_that_takes_too_long_is_the_operators_fault(compared: Lab) -> None:
    done = compared.score("--timeout", "reference=0.001")
    assert done.returncode == 1
    assert "scene_3d" not in compared.reward()
    assert "timeout after 0.001s" in compared.detail()["infrastructure"]["scene_3d"]


def test_each_reference_is_looked_at_once() -> None:
    references, looks = References(), []
    begun, go_on = threading.Event(), threading.Event()

    def look() -> Checked:
        looks.append(1)
        begun.set()
        go_on.wait(60)
        return Checked(render=(4,))

    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(references.sound(Path("a"), look))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    assert references.sound(Path("b"), lambda: Checked(render=(5,))) == (5,)  # others do not wait
    go_on.set()
    for thread in threads:
        thread.join()
    assert found == [(4,)] * 3
    assert len(looks) == 1


def test_only_a_verdict_is_remembered() -> None:
    references = References()

    def lost() -> Checked:
        raise WorkerLost("worker exited without a result")

    def slow() -> Checked:
        raise CallTimedOut("timeout after 1s")

    for look, text in ((lost, "without a result"), (slow, "a was not examined in time: timeout after 1s")):
        with pytest.raises(CallFailed, match=text) as caught:
            references.sound(Path("a"), look)
        assert caught.value.infrastructure
    faults = tuple(f"fault {number}" for number in range(5))
    for look in (lambda: Checked(faults), lost):
        with pytest.raises(
            CallFailed, match=r"reference world a: fault 0; fault 1; fault 2; and 2 more$"
        ) as caught:
            references.sound(Path("a"), look)
        assert caught.value.infrastructure
