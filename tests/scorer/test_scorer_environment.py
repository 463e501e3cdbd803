from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from scorer import cachedir
from scorer.cachedir import kernel_directory, private_directory
from scorer.environment import THREAD_VARIABLES, worker_environment


def test_threads_are_shared_or_as_told() -> None:
    cpus = len(os.sched_getaffinity(0))
    env = worker_environment(1, {})
    assert {env[name] for name in THREAD_VARIABLES} == {str(cpus)}
    assert env["IGL_NUM_THREADS"] == "1"
    assert worker_environment(100, {})["OMP_NUM_THREADS"] == "1"
    told = worker_environment(2, {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "5", "IGL_NUM_THREADS": "2"})
    assert (told["NUMBA_NUM_THREADS"], told["MKL_NUM_THREADS"], told["IGL_NUM_THREADS"]) == ("3", "5", "2")


def test_the_cache_lies_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert worker_environment(1, {"NUMBA_CACHE_DIR": "/x"})["NUMBA_CACHE_DIR"] == "/x"
    home = Path(worker_environment(1, {"HOME": str(tmp_path / "home")})["NUMBA_CACHE_DIR"])
    assert home.parent == tmp_path / "home" / ".cache" / "4dcodebench" / "numba"
    assert home.is_dir()
    for env in ({}, {"HOME": ""}, {"HOME": "/proc/none"}, {"HOME": "relative"}):
        cache = Path(worker_environment(1, env)["NUMBA_CACHE_DIR"])
        assert cache.parent.parent == tmp_path
        assert cache.parent.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    known = private_directory("numba", {})
    known.chmod(0o777)
    other = private_directory("numba", {})
    assert other != known
    known.rmdir()
    known.symlink_to(other)
    assert private_directory("numba", {}) != known


def test_each_state_of_the_sources_has_its_own_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(tmp_path)}
    first = kernel_directory(env)
    assert kernel_directory(env) == first
    for version in range(10):
        monkeypatch.setattr(cachedir, "_sources", lambda version=version: f"version{version}")
        changed = kernel_directory(env)
        assert changed != first
        os.utime(changed, (version, version))
    assert len(list(first.parent.iterdir())) <= 6
    assert changed.is_dir()


def test_kernels_that_came_with_the_image_are_taken_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cachedir, "_sources", lambda: "this")
    shipped = tmp_path / "shipped"
    for state in ("this", "other"):
        (shipped / state / "geometry").mkdir(parents=True)
        (shipped / state / "geometry" / "k.nbc").write_text(state, encoding="ascii")
    for path in (*shipped.rglob("*"), shipped):
        path.chmod(0o555 if path.is_dir() else 0o444)
    env = {"HOME": str(tmp_path / "home"), "FOURDCB_KERNELS": str(shipped)}
    taken = kernel_directory(env)
    assert (taken / "geometry/k.nbc").read_text(encoding="ascii") == "this"
    assert list(taken.parent.iterdir()) == [taken]
    assert taken.stat().st_mode & 0o700 == 0o700, "numba must be able to add to it"
    (taken / "new").mkdir()
    assert kernel_directory(env) == taken
    assert (taken / "new").is_dir()
    for path in (shipped, *shipped.rglob("*")):
        path.chmod(0o755)


@pytest.mark.parametrize("shipped", ["", "/nowhere/4dcb"])
def test_without_kernels_from_an_image_the_directory_is_empty(tmp_path: Path, shipped: str) -> None:
    taken = kernel_directory({"HOME": str(tmp_path), "FOURDCB_KERNELS": shipped})
    assert list(taken.iterdir()) == []


def test_kernels_that_cannot_be_copied_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachedir, "_sources", lambda: "this")
    (tmp_path / "shipped/this").mkdir(parents=True)

    def full(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full)
    env = {"HOME": str(tmp_path / "home"), "FOURDCB_KERNELS": str(tmp_path / "shipped")}
    taken = kernel_directory(env)
    assert list(taken.iterdir()) == []
    assert list(taken.parent.iterdir()) == [taken]


def test_importing_the_scorer_chooses_the_directory(tmp_path: Path) -> None:
    code = (
        "import os, scorer; from numba import config; print(os.environ['NUMBA_CACHE_DIR'], config.CACHE_DIR)"
    )
    env = {
        key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    chosen, used = done.stdout.split()
    assert chosen == used
    assert Path(chosen).parent == tmp_path / ".cache/4dcodebench/numba"
