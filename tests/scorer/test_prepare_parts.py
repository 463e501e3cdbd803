"""Small parts of the prepare stage: windows, checks of values, the writer's thread, the progress lines."""

from __future__ import annotations

import io
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from scorer.prepare.clip import Clip, batches
from scorer.prepare.flow import windows
from scorer.prepare.output import Output
from scorer.prepare.progress import EVERY, Progress, duration
from scorer.prepare.values import half
from world.video import VideoInfo


def a_clip(frames: int) -> Clip:
    info = VideoInfo(frames, 8, 8, Fraction(24), frames, 0, "h264", "yuv420p", False, ())
    return Clip(Path("reference.mp4"), info)


@pytest.mark.parametrize("count", range(9))
def test_windows_hold_every_pair_once(count: int) -> None:
    stacks = [stack.tolist() for stack in windows(np.array(i) for i in range(count))]
    assert [pair for stack in stacks for pair in pairwise(stack)] == list(pairwise(range(count)))
    assert all(len(stack) == 3 for stack in stacks[:-1])
    assert [list(batch) for batch in batches(range(count), 4)] == [
        list(range(i, min(i + 4, count))) for i in range(0, count, 4)
    ]


def test_float16() -> None:
    clip = a_clip(601)
    assert clip.stride == 3
    edge = np.array([65519.0, -65519.0, 1e-9], np.float32)
    assert half(edge, clip, 0, "flow").tolist() == [65504.0, -65504.0, 0.0]
    with pytest.raises(ValueError, match=r"reference\.mp4: frame 21: flow of 65520 does not fit"):
        half(np.array([65520.0], np.float32), clip, 7, "flow")
    with pytest.raises(ValueError, match=r"frame 600: flow is not finite"):
        half(np.array([np.nan], np.float32), clip, 200, "flow")


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_dense_file_vanishes_when_its_block_fails(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "flow.h5"
    path.write_bytes(b"older")
    with pytest.raises(type(error)):
        with Output(path).dense() as file:
            file.frames("flow", (4, 3, 3, 2), np.float16)
            file.frame("flow", 0, np.ones((3, 3, 2)))
            raise error
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("flow.h5", b"older")]


def test_an_error_of_the_writing_thread_surfaces(tmp_path: Path) -> None:
    for last in (False, True):
        with pytest.raises(TypeError):
            with Output(tmp_path / "flow.h5").dense() as file:
                file.frames("flow", (2, 3, 3, 2), np.float16)
                file.frame("flow", 0, np.ones((5, 5, 2)))
                if not last:
                    file.frame("flow", 1, np.ones((3, 3, 2)))
    assert list(tmp_path.iterdir()) == []


def test_a_dense_file_says_what_it_rests_on(tmp_path: Path) -> None:
    output = Output(tmp_path / "a.h5", {"fingerprint": "x"})
    with output.dense() as file:
        file.put("stride", np.int64(2))
        assert not output.path.exists()
    with h5py.File(output.path) as found:
        assert (found["stride"][()], found.attrs["provenance"]) == (2, '{"fingerprint": "x"}')


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    console = Progress(progress=False, clock=lambda: now[0])
    console.start(2, "flow.h5")
    console.begin("real/a: flow.h5", 100)
    for _ in range(50):
        now[0] += EVERY / 20
        console.frame()
    now[0] = 300.0
    console.made("real/a: flow.h5")
    console.begin("real/b: flow.h5", 100)
    now[0] = 310.0
    console.end()
    assert capsys.readouterr().out.splitlines() == [
        "real/a: flow.h5: 20 of 100 frames; 0 of 2 flow.h5, about 9 min left",
        "real/a: flow.h5: 40 of 100 frames; 0 of 2 flow.h5, about 8 min left",
        "real/a: flow.h5: done in 5 min, 0.2 frames/s; 1 of 2 flow.h5, about 5 min left",
    ]
    assert [duration(s) for s in (4.21, 59, 61, 3600, 11111)] == [
        "4.2 s",
        "59.0 s",
        "1 min",
        "1 h 0 min",
        "3 h 5 min",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as console:
        for name in ("flow.h5", "[b]depth.h5"):
            console.start(2, name)
            console.begin(f"real/a: {name}", 3)
            console.frame()
            console.made(f"real/a: {name}")
    text = screen.getvalue()
    assert all(part in text for part in ("real/a: flow.h5", "/2", "left"))
    assert "[b]depth.h5" in text
