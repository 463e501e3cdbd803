"""What the prepare stage writes, read by NumPy and h5py and worked out a second time from the frames."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from clips import ffmpeg, moving_square
from estimate_layout import LAYOUT, read
from prepare_lab import FAKE_TABLE, WIDTH, PrepareLab

from contract.checkpoints import GROUP_MODELS
from scorer.analytic.grid import grid_queries
from scorer.estimates import depth_estimate, flow_estimate, track_estimate
from scorer.estimates_features import geophys_estimate, moge_points, semantic_estimate
from scorer.prepare.table import TABLE
from world.video import frames, write_video


@pytest.fixture
def lab(tmp_path: Path) -> PrepareLab:
    return PrepareLab(tmp_path / "lab")


def test_the_table_agrees_with_the_checkpoints_table() -> None:
    for group, models in GROUP_MODELS.items():
        mine = [each for each in TABLE if each.group == group]
        assert tuple(each.model().directory for each in mine) == models
    assert [each.file for each in TABLE] == list(LAYOUT)
    assert all(set(each.members) <= set(LAYOUT[each.file]) for each in TABLE)
    assert [each.estimator for each in TABLE] != [each.estimator for each in FAKE_TABLE]
    names = {each.file: each.model().name for each in TABLE}
    assert names["flow.h5"] == "raft-large"
    assert names["tracks.npz"] == "cotracker3-offline"
    assert names["moge.npz"] == "moge-3-vitl"


def test_which_kind_needs_what() -> None:
    needed = {kind: {e.group for e in TABLE if e.needed(f"{kind}/x")} for kind in ("real", "synthetic")}
    assert needed == {"real": set(GROUP_MODELS), "synthetic": {"semantic", "geophys"}}


def test_every_file_of_a_real_case(lab: PrepareLab) -> None:
    directory = lab.add_case("real/clip", frames=6, height=41, width=57, fps=30)
    mask = np.zeros((6, 41, 57), np.uint8)
    mask[:, 10:30, 5:25] = 1
    lab.add_mask("real/clip", mask)
    assert lab.here() == 0
    assert lab.files("real/clip") == sorted(LAYOUT)
    clip = np.stack(list(frames(lab.video("real/clip"))))
    assert clip.shape == (6, 41, 57, 3)

    flow = read(directory / "flow.h5")
    red = clip[..., 0].astype(np.float32)
    assert (flow["flow"] == (np.stack([red[1:] - red[:-1], red[1:]], -1) / 8).astype(np.float16)).all()
    assert flow["valid"].shape == (5, 41, 57)
    assert flow["valid"].all()
    assert (flow["stride"], flow["model"], flow["iterations"]) == (1, "raft-large", 12)

    tracks = read(directory / "tracks.npz")
    queries = grid_queries(41, 57, mask=mask[0] != 0)
    assert (tracks["queries"] == queries).all()
    assert (tracks["tracks"] == queries[:, None, 1:] + np.arange(6)[None, :, None]).all()
    assert not tracks["visible"].all()
    pixel = queries[:, 1:].astype(int)
    assert (tracks["on_mask"] == (mask[0][pixel[:, 1], pixel[:, 0]] != 0)).all()
    assert tracks["on_mask"].any()
    assert tracks["shape"].tolist() == [6, 41, 57]
    assert tracks["tracking_resolution"].tolist() == [41, 57]
    assert (tracks["stride"], tracks["model"]) == (1, "cotracker3-offline")

    moge = read(directory / "moge.npz")
    inside = clip[0, ..., 0] / np.float32(255) > 0.3
    assert (moge["mask"] == inside).all()
    assert np.isnan(moge["points"][~inside]).all()
    assert (moge["points"][inside] == (clip[0].astype(np.float32) / 255)[inside]).all()
    assert moge["shape"].tolist() == [41, 57]
    assert (moge["model"], moge["resolution_level"], moge["refine_steps"]) == ("moge-3-vitl", 9, 3)

    for name, length in (("dinov3", 6), ("tips", 4)):
        semantic = read(directory / f"semantic_{name}.npz")
        assert (semantic["embeddings"] == clip.reshape(6, -1)[:, :WIDTH].astype(np.float32) + length).all()
        assert semantic["stride"] == 1
    geophys = read(directory / "geophys_dinov3.npz")
    mean = clip[:, :4, :4, 0].reshape(6, 16).astype(np.float32).mean(axis=1)
    np.testing.assert_allclose(geophys["trajectory"], np.stack([18 * mean, mean + 1], 1), rtol=1e-6)
    assert geophys["layer"] == 18

    depth = read(directory / "depth.h5")
    assert (depth["disparity"] == (clip[:, ::4, ::4, 0].astype(np.float16) + 1)).all()
    assert depth["shape"].tolist() == [6, 41, 57]
    assert depth["fps"] == 30


def test_the_scorer_reads_them(lab: PrepareLab) -> None:
    directory = lab.add_case("real/clip", frames=5)
    assert lab.here() == 0
    with flow_estimate(directory) as flow:
        assert flow.flow_shape == (4, 40, 56, 2)
        assert flow.step(3)[1].all()
    with depth_estimate(directory) as depth:
        assert (depth.shape, depth.stride, depth.fps) == ((5, 40, 56), 1, 24.0)
        assert depth.disparity(4).shape == (10, 14)
    tracks = track_estimate(directory)
    assert tracks.tracks.shape[1:] == (5, 2)
    for estimate in (
        semantic_estimate(directory, "dinov3"),
        semantic_estimate(directory, "tips"),
        geophys_estimate(directory, "dinov3"),
    ):
        estimate.require_video(5)
    assert len(moge_points(directory))


def test_long_videos_are_sampled(lab: PrepareLab) -> None:
    directory = lab.add_case("real/long", frames=301, height=16, width=16)
    lab.add_case("real/just", frames=300, height=16, width=16)
    assert lab.here() == 0
    clip = np.stack(list(frames(lab.video("real/long"))))[::2]
    assert len(clip) == 151
    shapes = {"flow": 150, "disparity": 151, "embeddings": 151, "trajectory": 151}
    for name in LAYOUT:
        arrays = read(directory / name)
        assert "stride" not in arrays or arrays["stride"] == 2
        assert all(len(arrays[key]) == count for key, count in shapes.items() if key in arrays)
    depth = read(directory / "depth.h5")
    assert depth["shape"].tolist() == [301, 16, 16]
    assert (depth["disparity"] == clip[:, ::4, ::4, 0].astype(np.float16) + 1).all()
    assert read(directory / "tracks.npz")["shape"].tolist() == [151, 16, 16]
    # Windows of three frames share one; batches hold eight.
    assert lab.calls.count("raft-large flow 3") == 75 + 149
    assert lab.calls.count("raft-large flow 2") == 1
    assert lab.calls.count("dinov3 embed 8") == 18 + 37
    assert lab.calls.count("dinov3 embed 7") == 1
    assert read(lab.estimates("real/just") / "flow.h5")["stride"] == 1


def test_a_large_video_is_tracked_small(lab: PrepareLab) -> None:
    """A 4K video of two frames: reduced by area to 768, its coordinates scaled back without a shift."""
    video = lab.video("real/4k")
    video.parent.mkdir(parents=True)
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc=size=3840x2160:rate=24", "-frames:v", 2, "-pix_fmt", "yuv420p", video
    )  # fmt: skip
    lab.cases.append("real/4k")
    assert lab.here("--only", "tracks,moge,semantic,depth") == 0
    assert "cotracker3-offline track (2, 432, 768, 3) uint8" in lab.calls
    tracks = read(lab.estimates("real/4k") / "tracks.npz")
    assert tracks["tracking_resolution"].tolist() == [432, 768]
    assert tracks["shape"].tolist() == [2, 2160, 3840]
    assert tracks["step"] == 64
    np.testing.assert_allclose(tracks["tracks"][:, 0], tracks["queries"][:, 1:], rtol=1e-6)
    np.testing.assert_allclose(tracks["tracks"][:, 1], tracks["queries"][:, 1:] + 5, rtol=1e-5)
    assert read(lab.estimates("real/4k") / "depth.h5")["disparity"].shape == (2, 540, 960)


def test_a_sideways_video(lab: PrepareLab, tmp_path: Path) -> None:
    """Sizes and pixels are those that a player shows."""
    plain = tmp_path / "plain.mp4"
    write_video(plain, moving_square(3, 32, 48), 24)
    video = lab.video("real/phone")
    video.parent.mkdir(parents=True)
    ffmpeg("-display_rotation", "90", "-i", plain, "-c", "copy", video)
    lab.cases.append("real/phone")
    assert lab.here() == 0
    directory = lab.estimates("real/phone")
    assert read(directory / "flow.h5")["flow"].shape == (2, 48, 32, 2)
    assert read(directory / "depth.h5")["shape"].tolist() == [3, 48, 32]
    assert read(directory / "moge.npz")["shape"].tolist() == [48, 32]


@pytest.mark.parametrize("what", ["size", "empty", "none"])
def test_a_mask_that_does_not_fit_is_no_mask(lab: PrepareLab, what: str) -> None:
    directory = lab.add_case("real/clip")
    shape = (5, 40, 55) if what == "size" else (5, 40, 56)
    if what != "none":
        lab.add_mask("real/clip", np.full(shape, what == "size", np.uint8))
    assert lab.here("--only", "tracks") == 0
    tracks = read(directory / "tracks.npz")
    assert (tracks["queries"] == grid_queries(40, 56)).all()
    assert not tracks["on_mask"].any()
    assert tracks["step"] == 2


def test_the_mask_counts_only_at_frame_0_and_is_part_of_what_tracks_rest_on(
    lab: PrepareLab, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = lab.add_case("real/clip", height=200, width=300)
    mask = np.zeros((5, 200, 300), np.uint8)
    mask[0, 50:90, 60:130] = 1
    lab.add_mask("real/clip", mask)
    assert lab.here("--only", "tracks,flow") == 0
    first = read(directory / "tracks.npz")
    assert (first["queries"] == grid_queries(200, 300, mask=mask[0] != 0)).all()
    queries, step = len(first["queries"]), int(first["step"])

    # The member's own rule: the smallest step from the area's upwards that leaves Q − 512 nodes.
    def nodes(size: int) -> int:
        ys = [(200 - (200 // size) * size) / 2 + size / 2 + i * size for i in range(200 // size)]
        xs = [(300 - (300 // size) * size) / 2 + size / 2 + i * size for i in range(300 // size)]
        return sum(50 <= int(y) < 90 and 60 <= int(x) < 130 for y in ys for x in xs)

    assert nodes(step) <= queries - 512
    assert step == round((40 * 70 / (queries - 512)) ** 0.5) or nodes(step - 1) > queries - 512
    with np.load(directory / "tracks.npz") as file:
        grid = json.loads(str(file["provenance"]))["grid"]
    assert grid["mask_usable"]
    assert grid["mask_step"] >= 1

    mask[0] = 0
    mask[1:, 50:90, 60:130] = 1
    lab.add_mask("real/clip", mask)
    lab.forget_calls()
    assert lab.here("--only", "tracks,flow") == 0
    assert "tracks.npz: made from something else, computed again" in capsys.readouterr().out
    assert [line.split()[1] for line in lab.calls] == ["cotracker3-offline", "track"]
    assert not read(directory / "tracks.npz")["on_mask"].any()


def test_the_note_says_what_a_file_rests_on(lab: PrepareLab) -> None:
    directory = lab.add_case("real/clip")
    assert lab.here("--only", "flow") == 0
    with h5py.File(directory / "flow.h5") as file:
        note = json.loads(file.attrs["provenance"])
    assert set(note) == {
        "checkpoint", "device", "fingerprint", "libraries", "model", "options", "scorer", "verified",
    }  # fmt: skip
    assert (note["device"], note["model"], note["verified"]) == ("cpu", "raft-large", False)
    assert note["options"] == {"iterations": 12}
    before = read(directory / "flow.h5")
    assert lab.here("--only", "flow", "--redo") == 0
    with h5py.File(directory / "flow.h5") as file:
        assert json.loads(file.attrs["provenance"]) == note
    after = read(directory / "flow.h5")
    assert set(after) == set(before)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
