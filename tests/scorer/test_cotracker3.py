"""The tracker's adapter: sizes, scaling, chunks and births, with the real package or a double of it."""

# ruff: noqa: E402
from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cv2")

import doubles
from one_thread import one_thread  # noqa: F401

from contract.errors import UserError
from scorer.analytic.grid import COUNT, DRIFT, grid_queries, grid_step, lattice
from scorer.estimators.cotracker3 import (
    CHUNK,
    COTRACKER3,
    Tracker,
    resized,
    to_full,
    to_tracking,
    tracking_size,
)

CPU = torch.device("cpu")
REAL = doubles.path_for("cotracker") is None
FIXTURES = [
    # height, width, tracking size, step, queries, coarse step, coarse nodes
    (1080, 1920, (432, 768), 32, 1980, 64, 480),
    (720, 1280, (432, 768), 21, 2040, 42, 510),
    (1280, 720, (768, 432), 21, 2040, 42, 510),
    (480, 854, (432, 768), 15, 1792, 28, 510),
    (480, 640, (480, 640), 13, 1764, 25, 475),
    (512, 512, (512, 512), 12, 1764, 23, 484),
    (1024, 1024, (768, 768), 23, 1936, 45, 484),
    (360, 640, (360, 640), 11, 1856, 21, 510),
    (1080, 2560, (324, 768), 37, 2001, 73, 490),
]


@pytest.mark.parametrize(("height", "width", "tracking", "step", "queries", "few", "nodes"), FIXTURES)
def test_sizes_and_queries_are_the_published_ones(height, width, tracking, step, queries, few, nodes):
    assert tracking_size(height, width) == tracking
    assert grid_step(height, width, COUNT) == step
    assert grid_queries(height, width).shape == (queries, 3)
    assert grid_step(height, width, DRIFT) == few
    assert len(lattice(height, width, few)) == nodes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((768, 768), (768, 768)),
        ((769, 768), (768, 767)),
        ((1, 1), (1, 1)),
        ((2000, 1), (768, 1)),  # 0.384 rounds to nothing: one pixel is left
        ((1536, 3), (768, 2)),  # a half, 1.5, to the even number
        ((1536, 5), (768, 2)),  # 2.5 too
    ],
)
def test_sizes_of_odd_videos(size, expected):
    assert tracking_size(*size) == expected
    assert tracking_size(*size[::-1]) == expected[::-1]


def test_frames_are_reduced_by_area_and_left_alone_at_their_size():
    frame = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    assert resized(frame, (8, 12)) is frame
    half = resized(frame, (4, 6))
    expected = frame.reshape(4, 2, 6, 2, 3).astype(float).mean(axis=(1, 3))
    assert half.dtype == np.uint8
    assert np.abs(half - expected).max() <= 0.5
    assert resized(frame, (5, 7)).shape == (5, 7, 3)


def test_coordinates_are_scaled_side_by_side_without_half_a_pixel():
    queries = np.array([[0, 0, 0], [3, 1920, 1080], [1, 20.5, 13.5]], np.float32)
    moved = to_tracking(queries, (1080, 1920), (432, 768))
    assert moved.dtype == np.float32
    assert np.allclose(moved, [[0, 0, 0], [3, 768, 432], [1, 8.2, 5.4]], rtol=1e-6)
    assert queries[1, 1] == 1920  # the given ones are left alone
    back = to_full(moved[None, :, 1:], (1080, 1920), (432, 768))
    assert back.dtype == np.float32
    assert np.allclose(back, queries[None, :, 1:], rtol=1e-6)
    uneven = to_tracking(queries, (480, 854), (432, 768))
    assert np.allclose(uneven[2], [1, 20.5 * 768 / 854, 13.5 * 432 / 480], rtol=1e-6)
    assert np.isnan(to_full(np.full((1, 1, 2), np.nan, np.float32), (4, 4), (2, 2))).all()


class Predictor:
    """Answers with where and when each query was asked, so that nothing can be mixed up; keeps its calls."""

    def __init__(self, most: int = 10**6) -> None:
        self.most = most
        self.calls: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, video, queries, backward_tracking):
        if queries.shape[1] > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert backward_tracking is False
        self.calls.append((video, queries))
        steps = torch.arange(video.shape[1], dtype=torch.float32)[None, :, None, None]
        visible = (torch.arange(video.shape[1])[:, None] + queries[0, :, 1].long()) % 2 == 0
        return queries[:, None, :, 1:] + steps, visible[None]


def clip(count: int, height: int = 6, width: int = 8) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width, 3), np.uint8)


def asked(count: int, frames: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    places = rng.integers(0, 50, (count, 2))
    return np.column_stack([np.arange(count) % frames, places]).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2040])
def test_queries_go_in_chunks_and_come_back_in_order(count):
    predictor = Predictor()
    frames, queries = clip(5), asked(count, 5)
    tracks, visible = Tracker(predictor, CPU).track(frames, queries)
    assert tracks.shape == (count, 5, 2)
    assert visible.shape == (count, 5)
    assert (tracks.dtype, visible.dtype) == (np.float32, np.bool_)
    sizes = [call[1].shape[1] for call in predictor.calls]
    assert sizes == [CHUNK] * (count // CHUNK) + [count % CHUNK] * (count % CHUNK > 0)
    for query, path, seen in zip(queries, tracks, visible, strict=True):
        for frame in range(5):
            if frame < query[0]:
                assert np.isnan(path[frame]).all()
                assert not seen[frame]
            else:
                assert path[frame].tolist() == [query[1] + frame, query[2] + frame]
                assert seen[frame] == ((frame + int(query[1])) % 2 == 0)


def test_the_package_gets_the_clip_as_it_wants_it():
    predictor = Predictor()
    frames, queries = clip(3), asked(4, 1)
    frames.flags.writeable = queries.flags.writeable = False
    Tracker(predictor, CPU).track(iter(frames), queries)
    video, given = predictor.calls[0]
    assert video.dtype == given.dtype == torch.float32
    assert video.shape == (1, 3, 3, 6, 8)
    assert video.is_contiguous()
    assert (video[0].permute(0, 2, 3, 1).numpy() == frames).all()
    assert (given[0].numpy() == queries).all()


def test_a_single_frame_is_passed_on():
    queries = asked(3, 1)
    tracks, _ = Tracker(Predictor(), CPU).track(clip(1), queries)
    assert (tracks[:, 0] == queries[:, 1:]).all()


@pytest.mark.parametrize(
    ("frames", "queries", "words"),
    [
        (np.empty((0, 4, 4, 3), np.uint8), asked(1, 1), "at least one frame"),
        ([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], asked(1, 1), "one shape"),
        (np.zeros((2, 4, 4, 3), np.float32), asked(1, 1), "uint8"),
        (np.zeros((2, 4, 4), np.uint8), asked(1, 1), "uint8"),
        (clip(2), np.zeros((3, 2)), "queries are"),
        (clip(2), [[2, 0, 0]], "frames 0 to 1"),
        (clip(2), [[-1, 0, 0]], "frames 0 to 1"),
        (clip(2), [[np.nan, 0, 0]], "frames 0 to 1"),
    ],
)
def test_what_cannot_be_tracked_is_refused(frames, queries, words):
    with pytest.raises(ValueError, match=words):
        Tracker(Predictor(), CPU).track(frames, queries)


def test_memory_that_runs_out_halves_a_chunk_once():
    queries = asked(CHUNK, 1)
    expected, _ = Tracker(Predictor(), CPU).track(clip(3), queries)
    predictor = Predictor(most=CHUNK // 2)
    found, _ = Tracker(predictor, CPU).track(clip(3), queries)
    assert [call[1].shape[1] for call in predictor.calls] == [CHUNK // 2] * 2
    assert (found == expected).all()
    with pytest.raises(MemoryError):
        Tracker(Predictor(most=CHUNK // 2 - 1), CPU).track(clip(3), queries)


@pytest.fixture
def double(monkeypatch):
    """The double on the path; the real package is used where it is installed, and then this is skipped."""
    if REAL:
        pytest.skip("the real package is installed")
    monkeypatch.syspath_prepend(str(doubles.path_for("cotracker")))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "cotracker"]:
        del sys.modules[name]


def test_a_moving_clip_end_to_end_through_the_double(tmp_path, double):
    """A bright square moves 8 right and 4 down a frame in a video twice as large as is tracked."""
    doubles.write_cotracker(tmp_path)
    height, width = 864, 1536
    size = tracking_size(height, width)
    assert size == (432, 768)
    frames = np.zeros((4, height, width, 3), np.uint8)
    for number, frame in enumerate(frames):
        frame[100 + 4 * number : 300 + 4 * number, 200 + 8 * number : 400 + 8 * number] = 200
    queries = np.array([[0, 300, 200], [0, 1530, 200], [2, 316, 208]], np.float32)
    model = COTRACKER3.load(CPU, tmp_path)
    small = (resized(frame, size) for frame in frames)
    tracks, visible = model.track(small, to_tracking(queries, (height, width), size))
    tracks = to_full(tracks, (height, width), size)
    moved = np.arange(4)[:, None] * [8, 4]
    assert np.abs(tracks[0] - np.add([300, 200], moved)).max() < 0.05
    assert np.abs(tracks[1] - np.add([1530, 200], moved)).max() < 0.05
    assert np.isnan(tracks[2, :2]).all()
    assert np.abs(tracks[2, 2:] - np.add([300, 200], moved)[2:]).max() < 0.05
    assert visible.tolist() == [[True] * 4, [True, False, False, False], [False, False, True, True]]


def test_the_double_refuses_what_is_no_checkpoint(tmp_path, double):
    path = doubles.write_cotracker(tmp_path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"scaled_offline\.pth"):
        COTRACKER3.load(CPU, tmp_path)


def test_a_missing_checkpoint_names_the_command(tmp_path, double):
    with pytest.raises(UserError, match=r"scaled_offline\.pth.*download_checkpoints\.py"):
        COTRACKER3.load(CPU, tmp_path)


def test_a_missing_package_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cotracker", None)
    doubles.write_cotracker(tmp_path)
    with pytest.raises(UserError, match=r"cotracker is not installed.*pip install"):
        COTRACKER3.load(CPU, tmp_path)


def test_another_package_of_that_name_is_said_to_be_unusable(tmp_path, monkeypatch):
    (tmp_path / "other" / "cotracker").mkdir(parents=True)
    (tmp_path / "other" / "cotracker" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    for name in [name for name in sys.modules if name.split(".")[0] == "cotracker"]:
        monkeypatch.delitem(sys.modules, name)
    doubles.write_cotracker(tmp_path)
    with pytest.raises(UserError, match="cotracker cannot be used"):
        COTRACKER3.load(CPU, tmp_path)
    sys.modules.pop("cotracker", None)


@pytest.mark.skipif(not REAL, reason="the cotracker package comes from git only and is not installed")
def test_the_real_package_takes_the_calls_that_we_make():
    from cotracker.predictor import CoTrackerPredictor

    assert {"checkpoint", "offline"} <= inspect.signature(CoTrackerPredictor).parameters.keys()
    called = inspect.signature(CoTrackerPredictor.forward).parameters
    assert {"queries", "backward_tracking"} <= called.keys()
    assert list(called)[1] == "video"


def test_names_are_those_of_the_protocol():
    assert COTRACKER3.name == "cotracker3-offline"
    assert COTRACKER3.directory == "cotracker3"
    assert COTRACKER3.requires == ("torch", "cotracker")
