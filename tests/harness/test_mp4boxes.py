"""Telling whole MP4 files from broken ones without a decoder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clips import clip
from harness_lab import VIDEO, box

from contract.errors import UserError
from harness.runtime.mp4boxes import check_video


def fault(path: Path) -> str:
    try:
        check_video(path)
    except UserError as error:
        assert str(path) in error.line()
        return error.line()
    return ""


def test_a_real_clip_passes_and_is_refused_at_every_length_below(tmp_path: Path) -> None:
    path = clip(tmp_path / "clip.mp4", frames=3)
    whole = path.read_bytes()
    assert fault(path) == ""
    cut = tmp_path / "cut.mp4"
    for length in range(0, len(whole), max(1, len(whole) // 150)):
        cut.write_bytes(whole[:length])
        assert fault(cut), length


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        (VIDEO, True),
        (box(b"moov", b"x") + box(b"mdat", b"y"), True),
        (box(b"ftyp") + b"\0\0\0\1mdat" + (20).to_bytes(8) + b"data" + box(b"moov"), True),
        (box(b"ftyp") + box(b"moov") + b"\0\0\0\0mdat and all the rest", True),
        (box(b"ftyp") + b"\0\0\0\0moov", True),
        (box(b"ftyp") + b"\0\0\0\1mdat" + (1 << 60).to_bytes(8), False),
        (box(b"ftyp") + b"\0\0\0\1mdat" + (3).to_bytes(8) + box(b"moov"), False),
        (box(b"ftyp") + b"\0\0\0\7moov", False),
        (box(b"ftyp") + b"\0\0\0\1", False),
        (b"\x1aE\xdf\xa3" + b"matroska" * 10, False),
        (b"RIFF\0\0\0\0AVI ", False),
        (b"\0" * 64, False),
    ],
)
def test_chains_of_boxes(tmp_path: Path, content: bytes, accepted: bool) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(content)
    assert (fault(path) == "") == accepted


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "has no video" in fault(tmp_path / "none.mp4")
    assert "no regular file" in fault(tmp_path)
    os.mkfifo(tmp_path / "pipe.mp4")
    assert "no regular file" in fault(tmp_path / "pipe.mp4")
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    assert "cannot be read" in fault(tmp_path / "loop.mp4")
    (tmp_path / "link.mp4").symlink_to(tmp_path / "real.mp4")
    (tmp_path / "real.mp4").write_bytes(VIDEO)
    assert fault(tmp_path / "link.mp4") == ""
