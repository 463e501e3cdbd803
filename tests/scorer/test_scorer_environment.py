from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

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
    assert home == tmp_path / "home" / ".cache" / "4dcodebench" / "numba"
    assert home.is_dir()
    for env in ({}, {"HOME": ""}, {"HOME": "/proc/none"}, {"HOME": "relative"}):
        cache = Path(worker_environment(1, env)["NUMBA_CACHE_DIR"])
        assert cache.parent == tmp_path
        assert cache.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    known = Path(worker_environment(1, {})["NUMBA_CACHE_DIR"])
    known.chmod(0o777)
    other = Path(worker_environment(1, {})["NUMBA_CACHE_DIR"])
    assert other != known
    known.rmdir()
    known.symlink_to(other)
    assert Path(worker_environment(1, {})["NUMBA_CACHE_DIR"]) != known
