"""The one decoder against FFmpeg's own answers, and files that lie."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import clips
import cv2
import numpy as np
import pytest

from world.video import VideoError, frames, probe, write_video


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clips.pattern(tmp_path_factory.mktemp("video") / "base.mp4")


def displayed(path: Path) -> np.ndarray:
    """First frame as ffmpeg shows it (autorotated)."""
    picture = path.with_suffix(".png")
    clips.ffmpeg("-i", path, "-frames:v", 1, picture)
    return cv2.imread(str(picture))[..., ::-1]


def test_facts(base: Path) -> None:
    info = probe(base)
    assert info.shape == (48, 48, 64)
    assert (info.fps, info.header_frames, info.rotation, info.codec) == (24, 48, 0, "h264")
    assert not info.variable
    assert info.times[-1] == pytest.approx(47 / 24)


@pytest.mark.parametrize("rate", ["30000/1001", "25", "12.5"])
def test_frame_rate_is_exact(tmp_path: Path, rate: str) -> None:
    assert probe(clips.pattern(tmp_path / "a.mp4", rate=rate, seconds=1)).fps == Fraction(rate)


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_rotation_is_applied_as_ffmpeg_does(base: Path, tmp_path: Path, angle: int) -> None:
    turned = tmp_path / "turned.mp4"
    clips.ffmpeg("-display_rotation", angle, "-i", base, "-c", "copy", turned)
    image = next(frames(turned))
    assert probe(turned).shape[1:] == image.shape[:2] == ((64, 48) if angle != 180 else (48, 64))
    assert np.abs(image.astype(int) - displayed(turned)).max() <= 2


def test_mirroring_is_applied(base: Path, tmp_path: Path) -> None:
    mirrored = tmp_path / "mirrored.mp4"
    clips.ffmpeg("-display_hflip", "-i", base, "-c", "copy", mirrored)
    assert np.abs(next(frames(mirrored)).astype(int) - displayed(mirrored)).max() <= 2


def test_edit_list_hides_frames(base: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mp4"
    clips.ffmpeg("-ss", 0.7, "-i", base, "-c", "copy", cut)
    info = probe(cut)
    assert (info.frames, info.header_frames) == (31, 48)
    assert len(list(frames(cut))) == 31


def test_truncation_names_the_three_counts(tmp_path: Path) -> None:
    whole = clips.pattern(tmp_path / "whole.mp4", seconds=12)
    data = whole.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(data[: int(len(data) * 0.6)])
    with pytest.raises(VideoError, match=r"header 288, decoded \d+, expected 288") as caught:
        probe(cut)
    assert caught.value.header == caught.value.expected == 288
    assert 0 < (caught.value.decoded or 0) < 288
    with pytest.raises(VideoError, match="header 288"):
        list(frames(cut))


def test_damaged_middle(tmp_path: Path) -> None:
    data = bytearray(clips.pattern(tmp_path / "a.mp4", seconds=8).read_bytes())
    rng = np.random.default_rng(0)
    for offset in rng.integers(0, 2000, 40):
        data[len(data) // 2 + offset] ^= 0x5A
    (tmp_path / "b.mp4").write_bytes(data)
    with pytest.raises(VideoError, match="damaged"):
        probe(tmp_path / "b.mp4")


@pytest.mark.parametrize("content", [b"", b"plain text", b"\x00\x00\x00\x18ftypisom" + bytes(100)])
def test_not_a_video(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(VideoError, match="cannot be opened as a video"):
        probe(tmp_path / "a.mp4")


def test_audio_only(tmp_path: Path) -> None:
    clips.ffmpeg("-f", "lavfi", "-i", "sine=duration=1", tmp_path / "a.mp4")
    with pytest.raises(VideoError, match="no video stream"):
        probe(tmp_path / "a.mp4")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "none.mp4")


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(VideoError, match="regular file"):
        probe(tmp_path / "a.mp4")


def test_a_playlist_opens_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n")
    with pytest.raises(VideoError):
        probe(tmp_path / "a.mp4")


@pytest.mark.parametrize(
    ("name", "codec"), [("a.mkv", "libx264"), ("a.webm", "libvpx-vp9"), ("a.avi", "mpeg4")]
)
def test_other_containers(tmp_path: Path, name: str, codec: str) -> None:
    assert probe(clips.pattern(tmp_path / name, codec=codec)).frames == 48


def test_step_takes_every_nth_frame(base: Path) -> None:
    everything = list(frames(base))
    some = list(frames(base, 5))
    assert len(some) == 10
    assert all(np.array_equal(one, everything[5 * index]) for index, one in enumerate(some))
    assert len(list(frames(base, 0))) == 48


@pytest.mark.parametrize("size", [(48, 64), (47, 63), (2, 2), (1, 1)])
def test_write_and_read_back(tmp_path: Path, size: tuple[int, int]) -> None:
    images = [np.full((*size, 3), 10 * index, np.uint8) for index in range(7)]
    assert write_video(tmp_path / "a.mp4", images, Fraction(30000, 1001)) == 7
    info = probe(tmp_path / "a.mp4")
    assert info.shape == (7, *size)
    assert info.fps == Fraction(30000, 1001)
    for written, read in zip(images, frames(tmp_path / "a.mp4"), strict=True):
        assert np.abs(written.astype(int) - read).max() <= 6
    assert os.listdir(tmp_path) == ["a.mp4"]


def test_one_frame(tmp_path: Path) -> None:
    clips.clip(tmp_path / "a.mp4", frames=1)
    assert probe(tmp_path / "a.mp4").frames == 1


def test_writing_nothing_or_nonsense_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no frame"):
        write_video(tmp_path / "a.mp4", [], 24)
    with pytest.raises(ValueError, match="uint8"):
        write_video(tmp_path / "a.mp4", [np.zeros((4, 4, 3), np.float32)], 24)  # type: ignore[list-item]
    sizes = [np.zeros((4, 4, 3), np.uint8), np.zeros((6, 4, 3), np.uint8)]
    with pytest.raises(ValueError, match="first was"):
        write_video(tmp_path / "a.mp4", sizes, 24)
    assert os.listdir(tmp_path) == []


def test_same_images_same_bytes(tmp_path: Path) -> None:
    assert clips.clip(tmp_path / "a.mp4").read_bytes() == clips.clip(tmp_path / "b.mp4").read_bytes()
