"""The OpenVDB helper: both operations, its errors, and one process for many frames."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from mantaflow import ball
from vdb_helper import built_helper

from scorer.child import is_infrastructure
from scorer.liquid.helper import VARIABLE, Helper, HelperUnavailable, find_helper

DIMS = (24, 20, 16)
CENTRE = (11.5, 9.5, 7.5)


@pytest.fixture(scope="session")
def helper() -> Path:
    return built_helper()


@pytest.fixture(scope="session")
def vdb(repository: Path) -> Path:
    return repository / "tests" / "fixtures" / "vdb"


@pytest.fixture
def named(helper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(helper))


def call(helper: Path, *arguments: object, threads: str | None = None) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"]} | ({} if threads is None else {"OMP_NUM_THREADS": threads})
    done = subprocess.run([helper, *map(str, arguments)], capture_output=True, text=True, env=env)
    assert done.stdout == ""
    return done.returncode, done.stderr


def mesh_file(path: Path, vertices: np.ndarray, faces: np.ndarray) -> Path:
    counts = np.array([len(vertices), len(faces)], "<i4")
    path.write_bytes(counts.tobytes() + vertices.astype("<f4").tobytes() + faces.astype("<i4").tobytes())
    return path


def distance(radius: float) -> np.ndarray:
    cells = np.stack(np.meshgrid(*map(np.arange, DIMS), indexing="ij"), axis=-1)
    return np.clip(np.linalg.norm(cells - CENTRE, axis=-1) - radius, -3, 3)


def test_a_closed_ball(helper: Path, tmp_path: Path) -> None:
    mesh, out = mesh_file(tmp_path / "mesh", *ball(5, CENTRE, 40)), tmp_path / "phi"
    assert call(helper, "surface", mesh, out, *DIMS) == (0, "")
    phi = np.fromfile(out, np.float32).reshape(DIMS)
    assert (phi.min(), phi.max()) == (-3, 3)
    np.testing.assert_allclose(phi, distance(5), atol=0.1)
    one = out.read_bytes()
    for threads in ("1", "2", "nonsense", "-3"):
        assert call(helper, "surface", mesh, out, *DIMS, threads=threads) == (0, "")
        assert out.read_bytes() == one


def test_an_open_sheet_is_hardly_ever_inside(helper: Path, tmp_path: Path) -> None:
    vertices = np.array([[2, 2, 7], [20, 2, 7], [20, 17, 7], [2, 17, 7]], np.float32)
    mesh = mesh_file(tmp_path / "mesh", vertices, np.array([[0, 1, 2], [0, 2, 3]]))
    assert call(helper, "surface", mesh, tmp_path / "phi", *DIMS) == (0, "")
    phi = np.fromfile(tmp_path / "phi", np.float32)
    assert -1e-5 < phi.min() <= 0
    assert phi.max() == 3


def test_nothing_is_outside(helper: Path, tmp_path: Path) -> None:
    mesh = mesh_file(tmp_path / "mesh", np.zeros((0, 3)), np.zeros((0, 3)))
    assert call(helper, "surface", mesh, tmp_path / "phi", *DIMS) == (0, "")
    assert (np.fromfile(tmp_path / "phi", np.float32) == 3).all()


def test_velocity(helper: Path, vdb: Path, tmp_path: Path) -> None:
    out = tmp_path / "velocity"
    assert call(helper, "velocity", vdb / "velocity.vdb", out, 5, 4, 3) == (0, "")
    x, y, z = np.meshgrid(range(5), range(4), range(3), indexing="ij")
    expected = np.stack([x + 10 * y, z, np.full_like(x, -1)], axis=-1)
    assert np.array_equal(np.fromfile(out, np.float32).reshape(5, 4, 3, 3), expected)


USAGE = "usage: scorer-vdb velocity|surface input output nx ny nz\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("velocity",),
        ("velocity", "a", "b", 1, 2),
        ("velocity", "a", "b", 1, 2, 3, 4),
        ("velocity", "a", "b", 1, 2, "x"),
        ("velocity", "a", "b", 1, 2, "3x"),
        ("surface", "a", "b", 1, 0, 3),
        ("surface", "a", "b", 1, -4, 3),
        ("serve", 1, 2),
    ],
)
def test_usage(helper: Path, arguments: tuple[object, ...]) -> None:
    assert call(helper, *arguments) == (1, USAGE)


def test_errors(helper: Path, vdb: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = mesh_file(tmp_path / "mesh", *ball(5, CENTRE, 8)).read_bytes()
    broken = {
        "cut": whole[:-1],
        "empty": b"",
        "half": whole[:6],
        "negative": np.array([-1, 2], "<i4").tobytes() + whole[8:],
        "boast": np.array([2**31 - 1] * 2, "<i4").tobytes() + whole[8:],
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        assert call(helper, "surface", tmp_path / name, out, *DIMS) == (1, "truncated mesh input\n")
    assert call(helper, "surface", tmp_path / "none", out, *DIMS) == (1, "truncated mesh input\n")
    stray = mesh_file(tmp_path / "stray", np.zeros((3, 3)), np.array([[0, 1, 3]]))
    assert call(helper, "surface", stray, out, *DIMS) == (1, "face index out of range\n")
    assert call(helper, "scalar", "a", "b", 1, 2, 3) == (1, "unknown grid operation: scalar\n")
    wrong = (1, "velocity must be a Vec3S grid\n")
    assert call(helper, "velocity", vdb / "scalar.vdb", out, 5, 4, 3) == wrong
    wrong = (1, "velocity resolution disagrees with configuration\n")
    assert call(helper, "velocity", vdb / "velocity.vdb", out, 4, 5, 3) == wrong
    assert call(helper, "velocity", vdb / "no_metadata.vdb", out, 5, 4, 3) == wrong
    assert not out.exists()
    wrong = (1, "cannot write dense grid\n")
    assert call(helper, "velocity", vdb / "velocity.vdb", tmp_path / "no" / "out", 5, 4, 3) == wrong
    assert call(helper, "velocity", vdb / "velocity.vdb", "/dev/full", 5, 4, 3) == wrong
    for name in ("unnamed.vdb", "none.vdb", "make.cpp"):
        status, text = call(helper, "velocity", vdb / name, out, 5, 4, 3)
        assert status == 1
        assert text.count("\n") == 1
        assert len(text) > 5


@pytest.mark.usefixtures("named")
def test_one_process_serves_many(vdb: Path, tmp_path: Path) -> None:
    phi, velocity = np.empty(DIMS, np.float32), np.empty((5, 4, 3, 3), np.float32)
    with Helper(DIMS) as running:
        for radius in (5, 3, 6):
            running.ask_surface(*ball(radius, CENTRE, 30))
            running.answer(phi, "ball")
            np.testing.assert_allclose(phi, distance(radius), atol=0.1)
        running.ask_velocity(vdb / "velocity.vdb")
        with pytest.raises(
            ValueError, match=r"^drop\.vdb: velocity resolution disagrees with configuration$"
        ):
            running.answer(np.empty((*DIMS, 3), np.float32), "drop.vdb")
        running.ask_surface(*ball(5, CENTRE, 30))  # an error ends nothing
        running.answer(phi, "ball")
        np.testing.assert_allclose(phi, distance(5), atol=0.1)
    odd = tmp_path / "a line\nand more"
    odd.mkdir()
    (odd / "v.vdb").write_bytes((vdb / "velocity.vdb").read_bytes())
    with Helper((5, 4, 3)) as running:
        running.ask_velocity(odd / "v.vdb")
        running.answer(velocity, "odd")
    assert velocity[4, 3, 2].tolist() == [34, 2, -1]


@pytest.mark.usefixtures("named")
def test_a_helper_that_is_gone() -> None:
    for number, kind in ((signal.SIGKILL, HelperUnavailable), (signal.SIGSEGV, ValueError)):
        with Helper(DIMS) as running:
            running._process.send_signal(number)
            running._process.wait()
            running.ask_surface(*ball(5, CENTRE))
            with pytest.raises(kind, match=f"^ball: .*{number.name}") as caught:
                running.answer(np.empty(DIMS, np.float32), "ball")
            assert is_infrastructure(caught.value) == (number == signal.SIGKILL)


def test_a_missing_helper_is_the_machines_failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    with pytest.raises(HelperUnavailable, match=r"scripts/build_vdb\.sh") as caught:
        find_helper()
    assert is_infrastructure(caught.value)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    with pytest.raises(HelperUnavailable, match=r"scripts/build_vdb\.sh"):
        find_helper()
    program = tmp_path / "scorer-vdb"
    program.write_text("#!/bin/sh\necho no library here >&2\nexit 127\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert find_helper() == program
    with pytest.raises(HelperUnavailable, match="does not work here: no library here"):
        Helper(DIMS)
    beside = tmp_path / "bin" / "scorer-vdb"
    beside.parent.mkdir()
    program.rename(beside)
    assert find_helper() == beside


def test_the_build_names_what_is_missing(repository: Path, tmp_path: Path) -> None:
    script = repository / "scripts" / "build_vdb.sh"

    def build(*arguments: object, **env: str) -> tuple[int, str]:
        env = {"PATH": os.environ["PATH"]} | env
        done = subprocess.run([script, *map(str, arguments)], capture_output=True, text=True, env=env)
        return done.returncode, done.stderr

    assert build(tmp_path / "out", CXX="no-such-compiler") == (
        2,
        "error: no C++ compiler (no-such-compiler) found. Next: apt-get install g++\n",
    )
    status, text = build(tmp_path / "out", CXX="false")
    assert status == 2
    assert "Next: apt-get install libopenvdb-dev" in text
    assert build(1, 2)[0] == 2
    assert not any(tmp_path.iterdir())
