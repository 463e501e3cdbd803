"""The download killed at twenty random points: what is in its place is always whole, and the rest follows.

The program runs as it is, in a process of its own with real worker processes. A hook counts what it does to
files and how often data arrives, and at a drawn count the process sends itself SIGKILL.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import hub
from published_data import CLIPS, WORLDS, found, publish

KILLS = 20

DRIVER = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv.pop(1))
last, root = int(sys.argv.pop(1)), sys.argv.pop(1)
import download_data, fetching, unpack_slots
count, lock = 0, threading.Lock()

def step():
    global count
    with lock:
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

def audit(event, arguments):
    if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove") and root in str(arguments[0]):
        step()

def counted(function):
    def call(*arguments, **named):
        step()
        return function(*arguments, **named)
    return call

fetching._BLOCK = 8192
fetching._read = counted(fetching._read)
unpack_slots.Slots.ask = counted(unpack_slots.Slots.ask)
unpack_slots.json.loads = counted(unpack_slots.json.loads)
sys.addaudithook(audit)
status = download_data.main()
print("steps", count)
sys.exit(status)
"""


@pytest.mark.slow
def test_twenty_kills(fixture_worlds: Path, tmp_path: Path, repository: Path) -> None:
    made = publish(tmp_path / "published", fixture_worlds)
    expected = made.expected()
    draw = random.Random(20)
    points: list[int] = []
    with hub() as state:
        made.serve(state)
        root = tmp_path / "tree"
        steps = _run(repository, state.url, root, 0)
        assert steps > 100
        assert found(root) == expected
        shutil.rmtree(root)
        while len(points) < KILLS:
            # Often near the beginning of what is left, so that several kills meet one download.
            point = draw.randint(1, draw.choice((steps // 4, steps)))
            if _run(repository, state.url, root, point) is None:
                points.append(point)
                _check(root, expected)
            else:
                assert found(root) == expected
                shutil.rmtree(root)
        assert _run(repository, state.url, root, 0)
    assert found(root) == expected
    assert len(set(points)) > KILLS // 2
    left = [path for path in root.rglob("*") if ".partial" in path.name or path.suffix in (".tmp", ".h5")]
    assert left == []
    _check_records(root)


def _run(repository: Path, url: str, root: Path, last: int) -> int | None:
    """Steps of a whole run, or None of one that was killed at step ``last``."""
    words = [str(repository / "scripts"), str(last), str(root), "--jobs", "1"]
    words += ["--cases-dir", str(root / "cases"), "--data-dir", str(root / "data")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *words],
        env=environment | {"HF_ENDPOINT": url}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode == -9:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def _check(root: Path, expected: Mapping[str, Any]) -> None:
    """Nothing that is in its place is broken, and a world that is there is all there."""
    final = found(root)
    for path, content in final.items():
        assert path in expected, path
        assert content == expected[path], path
    for name in WORLDS:
        prefix = f"data/synthetic/{name}/world/"
        if (root / prefix).exists():
            assert {path for path in expected if path.startswith(prefix)} <= set(final)


def _check_records(root: Path) -> None:
    labels = {f"real/{name}" for name in CLIPS} | {f"synthetic/{name}" for name in WORLDS}
    for label in labels:
        record = json.loads((root / "data" / label / "download.json").read_text())
        second = "world" if label.startswith("synthetic") else "annotation/dynamic_mask.npz"
        assert set(record["files"]) == {"reference.mp4", second}
