"""`scripts/add_case.py`: any video becomes a case, and what cannot is refused without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import add_case
import case_tree
import make_demo_case
import numpy as np
import pytest
import source_clip
from base_world import build_base_world
from clips import clip, ffmpeg, moving_square, pattern
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.errors import UserError
from world.video import frames, probe, write_video


class Trees:
    """A cases tree and a data tree, and the program run on them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, video: Path, *arguments: object) -> None:
        trees = ("--cases", self.root / "cases", "--data", self.root / "data")
        assert add_case.main([str(part) for part in (video, *trees, *arguments)]) == 0

    def video(self, label: str) -> Path:
        return self.root / "cases" / label / "reference.mp4"

    def mask(self, label: str) -> Path:
        return self.root / "data" / label / "annotation" / "dynamic_mask.npz"

    def content(self) -> dict[str, bytes]:
        """Every path below the trees, with the bytes of the files."""
        return {
            str(path.relative_to(self.root)): path.read_bytes() if path.is_file() else b""
            for path in sorted(self.root.rglob("*"))
        }

    def refuse(self, video: Path, *arguments: object) -> str:
        """The message of a refusal; nothing on disk has changed."""
        before = self.content()
        with pytest.raises(UserError) as caught:
            self.add(video, *arguments)
        assert self.content() == before
        message = caught.value.line()
        assert "\n" not in message
        return message


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    root = tmp_path / "project"
    root.mkdir()
    return Trees(root)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def plain(inputs: Path) -> Path:
    return pattern(inputs / "plain clip.mp4", seconds=1, size="64x48")


def numbered(count: int, height: int = 48, width: int = 64) -> list[np.ndarray]:
    """Frames that show their number as six black or white bars, which compression cannot blur."""
    bars = (np.arange(count)[:, None] >> np.arange(6)) & 1
    rows = np.repeat(bars * 200 + 20, -(-width // 6), axis=1)[:, :width]
    return [np.tile(row[None, :, None], (height, 1, 3)).astype(np.uint8) for row in rows]


def numbers_of(path: Path) -> list[int]:
    middles = (np.arange(6) + 0.5) * -(-64 // 6)
    bits = [image[20:28, middles.astype(int)].mean(axis=(0, 2)) > 120 for image in frames(path)]
    return [int((row << np.arange(6)).sum()) for row in bits]


def facts(path: Path) -> tuple[int, int, int, Fraction, str, str]:
    info = probe(path)
    return info.frames, info.height, info.width, info.fps, info.codec, info.pixel_format


# What becomes a case.


def test_plain_clip_and_its_name(trees: Trees, plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.add(plain)
    assert facts(trees.video("real/plain_clip")) == (24, 48, 64, 24, "h264", "yuv420p")
    assert not (trees.root / "data" / "real" / "plain_clip").exists()
    printed = capsys.readouterr().out
    assert "24 frames, 64×48, 24 fps" in printed
    assert "(24, 48, 64)" in printed
    assert "infer.py" in printed


def test_same_bytes_every_time(trees: Trees, plain: Path) -> None:
    trees.add(plain, "--name", "a")
    trees.add(plain, "--name", "b")
    assert trees.video("real/a").read_bytes() == trees.video("real/b").read_bytes()


def test_rotation_is_applied(trees: Trees, inputs: Path, plain: Path) -> None:
    turned, upright = inputs / "turned.mp4", inputs / "upright.mp4"
    ffmpeg("-display_rotation", 90, "-i", plain, "-c", "copy", turned)
    ffmpeg("-i", turned, "-c:v", "libx264", "-crf", 10, upright)  # ffmpeg turns it by itself
    trees.add(turned)
    assert facts(trees.video("real/turned"))[:3] == (24, 64, 48)
    for ours, theirs in zip(frames(trees.video("real/turned")), frames(upright), strict=True):
        # Both were compressed once more; the other way round they have nothing in common.
        assert np.abs(ours.astype(int) - theirs).mean() < 12
        assert np.abs(ours[::-1, ::-1].astype(int) - theirs).mean() > 40


def test_edit_list_is_applied(trees: Trees, inputs: Path) -> None:
    whole, cut = inputs / "whole.mp4", inputs / "cut.mp4"
    write_video(whole, numbered(48), 24)
    ffmpeg("-ss", 0.7, "-i", whole, "-c", "copy", cut)
    assert probe(cut).header_frames == 48  # the frames before the cut are in the file
    trees.add(cut)
    assert numbers_of(trees.video("real/cut")) == list(range(17, 48))


@pytest.mark.parametrize(("rate", "fps"), [("30000/1001", 30), ("24000/1001", 24), ("25", 25)])
def test_near_rates_keep_every_frame(trees: Trees, inputs: Path, rate: str, fps: int) -> None:
    path = inputs / f"rate{fps}.mp4"
    write_video(path, numbered(20), Fraction(rate))
    trees.add(path)
    made = trees.video(f"real/rate{fps}")
    assert facts(made)[3] == fps
    assert numbers_of(made) == list(range(20))


def test_far_rates_are_resampled(trees: Trees, inputs: Path) -> None:
    path = inputs / "half.mp4"
    write_video(path, numbered(25), Fraction(25, 2))
    trees.add(path, "--fps", 25)
    made = trees.video("real/half")
    assert facts(made)[3] == 25
    assert numbers_of(made) == [k // 2 for k in range(50)]


def test_uneven_times_are_resampled(trees: Trees, inputs: Path) -> None:
    even, uneven = inputs / "even.mp4", inputs / "uneven.mp4"
    write_video(even, numbered(48), 24)
    # 12 frames at the full rate, then every third: times 0 … 11, 12, 15, 18 … of 1/24 s.
    ffmpeg("-i", even, "-vf", "select='lt(n,12)+not(mod(n,3))'", "-fps_mode", "vfr", "-crf", 8, uneven)
    info = probe(uneven)
    assert info.variable
    assert info.frames == 24
    trees.add(uneven, "--fps", 24)
    numbers = numbers_of(trees.video("real/uneven"))
    assert numbers[:12] == list(range(12))
    late = np.arange(12, len(numbers))
    assert np.abs(np.array(numbers[12:]) - late).max() <= 2
    assert set(numbers[12:]) <= set(range(12, 48, 3))
    trees.add(uneven, "--name", "mean")
    assert facts(trees.video("real/mean"))[3] == round(23 / info.times[-1])


def test_odd_sides_are_cut(trees: Trees, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = inputs / "odd.mp4"
    write_video(path, moving_square(6, 49, 65), 24)
    trees.add(path)
    assert facts(trees.video("real/odd"))[:3] == (6, 48, 64)
    assert "cut from 65×49 to 64×48" in capsys.readouterr().out


def test_large_frames_are_scaled(trees: Trees, inputs: Path) -> None:
    path = pattern(inputs / "large.mp4", seconds=0.25, size="640x362")
    trees.add(path, "--max-side", 201)
    assert facts(trees.video("real/large"))[:3] == (6, 114, 200)


def test_oblong_pixels_become_square(trees: Trees, inputs: Path, plain: Path) -> None:
    wide, turned = inputs / "wide.mp4", inputs / "wide_turned.mp4"
    ffmpeg("-i", plain, "-vf", "setsar=3/2", "-c:v", "libx264", wide)
    ffmpeg("-display_rotation", 90, "-i", wide, "-c", "copy", turned)
    trees.add(wide)
    trees.add(turned)
    assert facts(trees.video("real/wide"))[1:3] == (48, 96)
    assert facts(trees.video("real/wide_turned"))[1:3] == (96, 48)


def test_trimming(trees: Trees, inputs: Path) -> None:
    path = inputs / "trim.mp4"
    write_video(path, numbered(48), 24)
    trees.add(path, "--start", 0.5, "--frames", 10)
    assert numbers_of(trees.video("real/trim")) == list(range(12, 22))
    assert "48 frames" in trees.refuse(path, "--name", "b", "--start", 2)
    assert "36 or fewer" in trees.refuse(path, "--name", "b", "--start", 0.5, "--frames", 37)


def test_one_frame_is_warned_of(trees: Trees, inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trees.add(clip(inputs / "single.mp4", frames=1))
    assert facts(trees.video("real/single"))[0] == 1
    assert "cannot show any motion" in capsys.readouterr().err


def test_other_codecs_and_sound(trees: Trees, inputs: Path) -> None:
    film, loop = inputs / "film.mkv", inputs / "loop.gif"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc=size=64x48:rate=25:duration=1", "-f", "lavfi", "-i", "sine=duration=1",
        "-c:v", "mpeg4", "-c:a", "aac", film,
    )  # fmt: skip
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48:rate=10:duration=1", loop)
    trees.add(film)
    trees.add(loop)
    assert facts(trees.video("real/film"))[:4] == (25, 48, 64, 25)
    assert facts(trees.video("real/loop"))[:4] == (10, 48, 64, 10)


# What is refused.


def test_unusable_files(trees: Trees, inputs: Path, plain: Path) -> None:
    sound, cover, picture = inputs / "sound.m4a", inputs / "cover.mp3", inputs / "picture.png"
    ffmpeg("-f", "lavfi", "-i", "sine=duration=0.5", sound)
    ffmpeg("-f", "lavfi", "-i", "testsrc=size=64x48", "-frames:v", 1, picture)
    ffmpeg("-i", sound, "-i", picture, "-map", 0, "-map", 1, "-c:v", "copy", "-id3v2_version", 3, cover)
    text, prose, empty, short = (inputs / name for name in ("a.txt", "a.mp4", "empty.mp4", "short.mp4"))
    text.write_text("not a video\n" * 40)
    prose.write_text("not a video\n" * 40)
    empty.write_bytes(b"")
    whole = pattern(inputs / "long.mp4", seconds=4).read_bytes()
    short.write_bytes(whole[: len(whole) * 6 // 10])
    no_index = inputs / "no_index.mp4"
    no_index.write_bytes(plain.read_bytes()[:200])
    for path, words in (
        (inputs / "absent.mp4", "no such file"),
        (inputs, "is not a file"),
        (sound, "no video"),
        (cover, "no video"),
        (picture, "still picture"),
        (text, "text"),
        (prose, "cannot be opened"),
        (empty, "cannot be opened"),
        (no_index, "no video"),
        (short, "decoded"),
    ):
        message = trees.refuse(path, "--name", "x")
        assert words in message, message
        assert str(path) in message
    assert trees.content() == {}


def test_program_says_it_in_one_line(trees: Trees, inputs: Path, repository: Path) -> None:
    program = repository / "scripts" / "add_case.py"
    environment = os.environ | {"PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, str(program), str(inputs / "absent.mp4")],
        cwd=trees.root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert trees.content() == {}


def test_names_and_options(trees: Trees, inputs: Path, plain: Path) -> None:
    odd_name = inputs / "….mp4"
    odd_name.write_bytes(plain.read_bytes())
    assert "--name" in trees.refuse(odd_name)
    for name in ("", "../x", ".hidden", "a/b", "x ", "-x", "ü"):
        assert "cannot be the name" in trees.refuse(plain, f"--name={name}")
    assert "at most 200" in trees.refuse(plain, "--name", 201 * "n")
    assert "--world" in trees.refuse(plain, "--kind", "synthetic")
    assert "--world" in trees.refuse(plain, "--world", inputs)
    assert "no such file" in trees.refuse(plain, "--mask", inputs / "absent.npz")
    trees.add(plain)
    message = trees.refuse(plain)
    assert "real/plain_clip is there already" in message
    assert "--force" in message


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("Ünï cö'dé", "Uni_code"),
        ("Grandma\u2019s café (2)", "Grandmas_cafe_2_"),
        ("e\u0301te\u0301", "ete"),
        ("ﬁlm ½", "film_1_2"),
        ("東京 clip", "_clip"),
        ("..-x.y-", "x.y-"),
    ],
)
def test_names_from_file_names(stem: str, name: str) -> None:
    assert add_case.name_of(Path(f"{stem}.mp4")) == name
    assert case_tree.CasePlace(Path("c"), Path("d"), "real", name).label == f"real/{name}"


def test_a_result_that_is_not_what_was_planned_is_one_line(
    trees: Trees, plain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(add_case, "write_video", lambda path, *_: path.write_bytes(plain.read_bytes()))
    where = ["--cases", str(trees.root / "cases"), "--data", str(trees.root / "data")]
    assert add_case.main([str(plain), *where, "--frames", "2"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: real/plain_clip: encoded (24, ")
    assert said.count("\n") == 1
    assert trees.content() == {}


def test_trees_are_those_of_the_launchers_wherever_one_stands(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for parser, words in ((add_case._parser(), ["x.mp4"]), (make_demo_case._parser(), [])):
        options = parser.parse_args(words)
        assert (options.cases, options.data) == (repository / "cases", repository / "data")
        assert "of the repository" in " ".join(parser.format_help().split())
    given = make_demo_case._parser().parse_args(["--cases", "here"])
    assert given.cases == Path("here")
    assert case_tree.shown(tmp_path / "here" / "x") == Path("here/x")
    assert case_tree.shown(repository / "cases") == repository / "cases"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--fps", "0"),
        ("--fps", "x"),
        ("--frames", "0"),
        ("--start", "-1"),
        ("--max-side", "8"),
        ("--colour", "1"),
    ],
)
def test_bad_numbers_exit_2(trees: Trees, plain: Path, wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as caught:
        trees.add(plain, *wrong)
    assert caught.value.code == 2
    assert trees.content() == {}


def test_too_long_and_too_small(
    trees: Trees, inputs: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = clip(inputs / "tiny.mkv.mp4", frames=3, height=32, width=64)
    assert "at least 16 pixels" in trees.refuse(tiny, "--max-side", 16)
    monkeypatch.setattr(source_clip, "MAX_MESH_FRAMES", 23)
    assert "24 frames" in trees.refuse(plain)
    trees.add(plain, "--frames", 23)


def test_trees_that_cannot_be_written(trees: Trees, plain: Path) -> None:
    (trees.root / "cases").write_text("a file")
    assert "cannot be written" in trees.refuse(plain)


# Masks.


def save_mask(path: Path, mask: np.ndarray, name: str = "mask") -> Path:
    np.savez_compressed(path, **{name: mask})
    return path


def good_mask() -> np.ndarray:
    mask = np.zeros((24, 48, 64), np.uint8)
    mask[:, 10:20, 10:30] = 1
    return mask


def test_mask_is_stored(trees: Trees, inputs: Path, plain: Path) -> None:
    path = save_mask(inputs / "mask.npz", good_mask())
    trees.add(plain, "--mask", path)
    assert trees.mask("real/plain_clip").read_bytes() == path.read_bytes()


def test_masks_that_do_not_fit(
    trees: Trees, inputs: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_case, "MASK_BLOCK", 48 * 64 * 5)  # several blocks, the last one shorter
    mask = good_mask()
    late = mask.copy()
    late[-1, 0, 0] = 2
    for number, (array, name, words) in enumerate(
        (
            (mask[:-1], "mask", "(23, 48, 64)"),
            (mask.transpose(0, 2, 1), "mask", "(24, 64, 48)"),
            (mask.astype(bool), "mask", "bool"),
            (mask.astype(np.float32), "mask", "float32"),
            (mask * 0, "mask", "0 everywhere"),
            (mask * 255, "mask", "255"),
            (late, "mask", "value 2"),
            (mask, "masks", "masks"),
        )
    ):
        message = trees.refuse(plain, "--mask", save_mask(inputs / f"bad{number}.npz", array, name))
        assert words in message, message
        assert "0 everywhere" in words or "(24, 48, 64)" in message
    junk, pickled = inputs / "junk.npz", inputs / "pickled.npz"
    junk.write_bytes(b"junk")
    np.savez(pickled, mask=np.array([{}], dtype=object))
    trees.refuse(plain, "--mask", junk)
    trees.refuse(plain, "--mask", pickled)


def test_force_keeps_a_mask_that_still_fits(trees: Trees, inputs: Path, plain: Path) -> None:
    path = save_mask(inputs / "kept.npz", good_mask())
    trees.add(plain, "--mask", path)
    estimates = trees.root / "data" / "real" / "plain_clip" / "estimates"
    estimates.mkdir()
    (estimates / "flow.h5").write_bytes(b"of the old video")
    trees.add(plain, "--force")
    assert trees.mask("real/plain_clip").read_bytes() == path.read_bytes()
    assert not estimates.exists()
    message = trees.refuse(plain, "--force", "--frames", 10)
    assert "own mask does not fit" in message
    assert "--mask" in message


# Synthetic cases.


def test_synthetic_case_takes_a_checked_world(trees: Trees, tmp_path: Path) -> None:
    world = build_base_world(tmp_path / "workspace")
    trees.add(world / "render.mp4", "--kind", "synthetic", "--name", "base", "--world", world)
    copied = trees.root / "data" / "synthetic" / "base" / "world"
    assert (copied / "meshes" / "1.npz").read_bytes() == (world / "meshes" / "1.npz").read_bytes()
    message = trees.refuse(
        world / "render.mp4", "--kind", "synthetic", "--name", "other", "--world", world, "--frames", 3
    )
    assert "not a valid world of this video" in message
    (world / "camera.json").unlink()
    message = trees.refuse(world / "render.mp4", "--kind", "synthetic", "--name", "other", "--world", world)
    assert "camera.json" in message


# The pieces.


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0.001, 0.5), min_size=0, max_size=40),
    st.integers(1, 60),
)
def test_nearest_agrees_with_looking_at_every_frame(steps: list[float], fps: int) -> None:
    times = np.concatenate([[0.0], np.cumsum(steps)])
    duration = float(times[-1]) + 0.1
    found = source_clip._nearest(times, duration, fps)
    assert len(found) == max(1, round(duration * fps))
    assert found == sorted(found)
    for tick, index in enumerate(found):
        distance = np.abs(times - tick / fps)
        assert distance[index] <= distance.min() + 1e-8


def test_a_failed_swap_leaves_the_old_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = case_tree.CasePlace(tmp_path / "cases", tmp_path / "data", "real", "x")
    for content in ("old", "new"):
        failing = content == "new"
        rename = Path.rename

        def stubborn(self: Path, target: Path, rename=rename, failing=failing) -> Path:  # type: ignore[no-untyped-def]
            if (
                failing
                and Path(target) == place.case_dir
                and self.parent.name != "old"
                and "real/x" in str(self)
            ):
                raise OSError("no")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", stubborn)
        try:
            with case_tree.staged(place) as draft:
                draft.video.write_text(content)
                (draft.data_dir / "thing").write_text(content)
        except OSError:
            assert failing
    assert place.video.read_text() == "old"
    assert (place.data_dir / "thing").read_text() == "old"
    assert sorted(p.name for p in (tmp_path / "cases" / "real").iterdir()) == ["x"]


def test_leftovers_of_killed_programs_are_swept(tmp_path: Path) -> None:
    place = case_tree.CasePlace(tmp_path / "cases", tmp_path / "data", "real", "x")
    dead = tmp_path / "cases" / "real" / ".partial-dead"
    dead.mkdir(parents=True)
    (dead / ".lock").touch()
    with case_tree.staged(place) as outer:
        assert not dead.exists()
        other = case_tree.CasePlace(place.cases, place.data, "real", "y")
        with case_tree.staged(other) as inner:
            inner.video.touch()
        assert outer.case_dir.is_dir()  # the workshop of a living program stays
        outer.video.touch()
    assert sorted(p.name for p in (tmp_path / "cases" / "real").iterdir()) == ["x", "y"]


def test_a_directory_swept_before_it_was_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = case_tree.fcntl.flock, []

    def late(handle: object, how: int) -> None:
        if how == case_tree.fcntl.LOCK_EX and not taken:
            taken.extend(tmp_path.rglob(f"{case_tree._PREFIX}*"))
            case_tree.sweep(taken[0].parent)
            assert not taken[0].exists()
        lock(handle, how)

    monkeypatch.setattr(case_tree.fcntl, "flock", late)
    place = case_tree.CasePlace(tmp_path / "cases", tmp_path / "data", "real", "x")
    with case_tree.staged(place) as draft:
        draft.video.write_text("video")
    assert place.video.read_text() == "video"
    assert taken
    assert not list(tmp_path.rglob(f"{case_tree._PREFIX}*"))
