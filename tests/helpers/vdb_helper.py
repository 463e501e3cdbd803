"""The compiled OpenVDB helper, for tests that need it: built once for each state of its source."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@lru_cache(maxsize=1)
def built_helper() -> Path:
    """Path of ``scorer-vdb``. Without a compiler or OpenVDB the test is skipped, or fails when CI=true."""
    source = b"".join((REPOSITORY / name).read_bytes() for name in ("scorer/vdb.cpp", "scripts/build_vdb.sh"))
    directory = Path(tempfile.gettempdir()) / f"4dcb-tests-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    assert directory.lstat().st_uid == os.getuid()
    path = directory / f"scorer-vdb-{hashlib.sha256(source).hexdigest()[:16]}"
    with (directory / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _require(shutil.which(os.environ.get("CXX", "g++")), "g++")
            command = [REPOSITORY / "scripts" / "build_vdb.sh", path]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            _require("not installed" not in done.stderr, "OpenVDB's headers (libopenvdb-dev)")
            assert done.returncode == 0, done.stderr
    return path


def _require(found: object, what: str) -> None:
    if found:
        return
    text = f"{what} missing: the OpenVDB helper cannot be built"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)
