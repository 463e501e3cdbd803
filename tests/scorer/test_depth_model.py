"""The depth model as prepare uses it: input sizes, windows, memory, and checkpoints from a store."""

# ruff: noqa: E402
from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from naive_depth import cubic, naive_clip
from one_thread import one_thread  # noqa: F401
from tiny_depth import TINY, depth_network, write_depth

from contract.errors import UserError
from scorer.estimators.architecture import FILE
from scorer.estimators.video_depth_anything import VIDEO_DEPTH_ANYTHING, DepthModel
from scorer.estimators.video_depth_anything_input import DEVIATION, MEAN, input_size, network_input
from scorer.estimators.video_depth_anything_windows import windows

CPU = torch.device("cpu")
LENGTHS = [1, 2, 31, 32, 33, 55, 56, 57, 80, 81, 100]


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (1080, 1920, (924, 518)),
        (720, 1280, (924, 518)),
        (1280, 720, (518, 924)),
        (480, 854, (924, 518)),
        (480, 640, (686, 518)),
        (512, 512, (518, 518)),
        (1024, 1024, (518, 518)),
        (360, 640, (924, 518)),
        (1080, 2560, (924, 392)),
    ],
)
def test_input_sizes_are_the_published_ones(height, width, expected):
    assert input_size(height, width) == expected
    assert input_size(width, height) == expected[::-1]


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (1, 1, (518, 518)),
        (333, 517, (798, 518)),  # 804.2 is nearer to 57 patches than to 58
        (2160, 3840, (924, 518)),
        (100, 178, (924, 518)),  # exactly 1.78: not stretched yet
        (100, 179, (924, 518)),  # 514.2 rounds back to 37 patches
        (1000, 1797, (924, 518)),  # 512.2 too
        (1000, 1803, (910, 504)),  # 510.5 does not
        (100, 400, (896, 224)),  # 230.1: 16 patches
        (2, 2000, (14000, 14)),  # the rule leaves no patch across: one
    ],
)
def test_input_sizes_of_odd_videos(height, width, expected):
    assert input_size(height, width) == expected


def resize_matrix(source: int, target: int) -> np.ndarray:
    weights = np.zeros((target, source))
    for row in range(target):
        at = (row + 0.5) * source / target - 0.5
        base = int(np.floor(at))
        for k in range(base - 1, base + 3):
            weights[row, min(max(k, 0), source - 1)] += cubic(at - k)
    return weights


@pytest.mark.parametrize(("shape", "size"), [((9, 13), (28, 14)), ((40, 31), (14, 28)), ((14, 14), (14, 14))])
def test_the_input_is_resized_bicubically_and_standardised(shape, size):
    frame = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    found = network_input(frame, size)
    vertical, horizontal = resize_matrix(shape[0], size[1]), resize_matrix(shape[1], size[0])
    resized = np.einsum("ri,cj,ijk->krc", vertical, horizontal, frame / 255.0)
    expected = (resized - MEAN[:, None, None]) / DEVIATION[:, None, None]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.shape == (3, size[1], size[0])
    assert np.abs(found - expected).max() < 2e-5


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((4, 4, 3)),
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(ValueError, match="uint8"):
        network_input(frame, (14, 14))


class Ramp:
    """A network whose map of a frame is the frame's number, read from its pixels; keeps what it was shown."""

    def __init__(self) -> None:
        self.encoded: list[list[int]] = []
        self.windows: list[tuple[list[int], slice]] = []

    def encode(self, images):
        pixels = images * torch.from_numpy(DEVIATION)[:, None, None] + torch.from_numpy(MEAN)[:, None, None]
        numbers = (pixels * 255).mean(dim=(1, 2, 3)).round()
        self.encoded.append([int(number) for number in numbers])
        return [(number,) for number in numbers]

    def decode(self, seen, wanted):
        self.windows.append(([int(taps[0]) for taps in seen], wanted))
        return torch.stack([taps[0].expand(2, 3) for taps in seen[wanted]])


def numbered(count: int, height: int = 6, width: int = 8):
    for number in range(count):
        yield np.full((height, width, 3), number, np.uint8)


@pytest.mark.parametrize("count", LENGTHS)
def test_every_frame_is_answered_once_in_order_within_the_right_window(count):
    network = Ramp()
    maps = list(DepthModel(network, CPU, side=28).disparity(numbered(count)))
    assert [float(each[0, 0]) for each in maps] == list(range(count))
    assert all(each.dtype == np.float32 and each.shape == (2, 3) for each in maps)
    # The windows from first principles: a new one each 24 frames while there are frames without an answer.
    starts = [0]
    while starts[-1] + 32 < count:
        starts.append(starts[-1] + 24)
    expected = [[min(start + offset, count - 1) for offset in range(32)] for start in starts]
    assert [shown for shown, _ in network.windows] == expected
    news = [range(32)[new] for _, new in network.windows]
    assert news[0] == range(min(count, 32))
    for start, new in zip(starts[1:], news[1:], strict=True):
        assert new == range(8, min(32, count - start))
    # Each frame is encoded once, eight at a time, though windows share frames.
    assert [number for part in network.encoded for number in part] == list(range(count))
    assert all(len(part) == 8 for part in network.encoded[:-1])


def test_no_frame_gives_no_map():
    network = Ramp()
    assert list(DepthModel(network, CPU).disparity(iter(()))) == []
    assert network.encoded == network.windows == []


def test_only_one_window_is_read_ahead():
    taken = []

    def frames():
        for number, frame in enumerate(numbered(200)):
            taken.append(number)
            yield frame

    maps = DepthModel(Ramp(), CPU, side=28).disparity(frames())
    for number, _ in enumerate(islice(maps, 150)):
        answered = 32 if number < 32 else 32 + 24 * -(-(number - 31) // 24)
        assert len(taken) == answered


@pytest.mark.parametrize(("length", "overlap"), [(4, 1), (4, 3), (5, 0)])
def test_windows_of_other_lengths(length, overlap):
    for count in range(20):
        joined = []
        for held, new in windows(range(count), length, overlap):
            assert len(held) == length
            assert held == [min(held[0] + offset, count - 1) for offset in range(length)]
            joined += held[new]
        assert joined == list(range(count))


def test_frames_of_unlike_shapes_are_refused():
    frames = [np.zeros((6, 8, 3), np.uint8), np.zeros((8, 6, 3), np.uint8)]
    with pytest.raises(ValueError, match="frame 1 has the shape"):
        list(DepthModel(Ramp(), CPU, side=28).disparity(frames))


class Tight(Ramp):
    """Runs out of memory on more images at once than ``most``; in decoding when ``windows_fit`` is false."""

    def __init__(self, most: int, windows_fit: bool = True) -> None:
        super().__init__()
        self.most, self.windows_fit = most, windows_fit

    def encode(self, images):
        if len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().encode(images)

    def decode(self, seen, wanted):
        if not self.windows_fit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().decode(seen, wanted)


def test_memory_that_runs_out_halves_the_encoders_batch_once():
    network = Tight(most=4)
    maps = list(DepthModel(network, CPU, side=28).disparity(numbered(37)))
    assert [float(each[0, 0]) for each in maps] == list(range(37))
    assert max(map(len, network.encoded)) == 4
    with pytest.raises(MemoryError):
        list(DepthModel(Tight(most=3), CPU, side=28).disparity(numbered(37)))
    with pytest.raises(MemoryError):
        list(DepthModel(Tight(most=8, windows_fit=False), CPU, side=28).disparity(numbered(37)))


def video(count: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)


@pytest.mark.parametrize(("count", "height", "width"), [(1, 30, 40), (34, 31, 45), (9, 57, 33)])
def test_a_video_through_a_stored_checkpoint_is_the_naive_one(tmp_path, count, height, width):
    write_depth(tmp_path)
    model = VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
    frames = video(count, height, width)
    found = np.stack(list(model.disparity(iter(frames))))
    size = input_size(height, width, 56)
    assert found.dtype == np.float32
    assert found.shape == (count, size[1], size[0])
    assert min(size) == 56
    inputs = torch.from_numpy(np.stack([network_input(frame, size) for frame in frames]))
    state = depth_network().state_dict()
    for start in range(0, count, 24):
        new = range(0 if not start else start + 8, min(start + 32, count))
        if len(new):
            clip = inputs[[min(start + offset, count - 1) for offset in range(32)]]
            expected = naive_clip(state, TINY.heads, TINY.depth, TINY.taps, clip)
            part = expected[new.start - start : new.stop - start].numpy()
            assert part.std() > 1e-3
            assert np.abs(found[new.start : new.stop] - part).max() < 1e-4


def test_the_same_video_gives_the_same_maps(tmp_path):
    write_depth(tmp_path)
    model = VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
    frames = video(3, 20, 20)
    first, second = (np.stack(list(model.disparity(iter(frames)))) for _ in range(2))
    assert (first == second).all()
    assert (first >= 0).all()


def test_names_are_those_of_the_protocol():
    assert VIDEO_DEPTH_ANYTHING.name == VIDEO_DEPTH_ANYTHING.directory == "video-depth-anything-large"
    assert VIDEO_DEPTH_ANYTHING.requires == ("torch",)


def test_a_missing_checkpoint_names_the_command(tmp_path):
    with pytest.raises(UserError, match=r"video_depth_anything_vitl\.pth.*download_checkpoints\.py"):
        VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)


def test_tiny_weights_without_their_sizes_are_not_the_official_model(tmp_path):
    path = write_depth(tmp_path)
    (path.parent / FILE).unlink()
    with pytest.raises(UserError, match="not this model's checkpoint"):
        VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)


def test_loading_is_strict(tmp_path):
    path = write_depth(tmp_path)
    whole = torch.load(path, weights_only=True)
    name = "head.motion_modules.2.temporal_transformer.proj_in.weight"
    less = {key: tensor for key, tensor in whole.items() if key != name}
    for state, words in (
        (less, "1 missing"),
        (whole | {"head.more": torch.zeros(1)}, "head.more"),
        (whole | {name: torch.zeros(32, 31)}, "proj_in"),
        ([1, 2], "no dictionary"),
        ({}, "missing"),
    ):
        torch.save(state, path)
        with pytest.raises(UserError, match=words):
            VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
    torch.save({key: tensor.half() for key, tensor in whole.items()}, path)
    model = VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)  # stored in half precision, used in float32
    assert next(model.disparity(video(1, 20, 20))).dtype == np.float32


class Harmful:
    def __reduce__(self):
        return (print, ("a checkpoint ran code",))


def test_a_hostile_or_damaged_checkpoint_runs_nothing(tmp_path, capsys):
    path = write_depth(tmp_path)
    good = path.read_bytes()
    torch.save({"weights": Harmful()}, path)
    hostile = path.read_bytes()
    for content in (hostile, b"", b"no checkpoint", good[: len(good) // 2], good[:100]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="video_depth_anything_vitl"):
            VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
    assert "ran code" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"widht": 24}', "unknown member 'widht'"),
        ('{"width": "24"}', "is not a size"),
        ('{"width": true}', "is not a size"),
        ('{"width": -1}', "is not a size"),
        ('{"taps": [0, 1, 2]}', "list of 4"),
        ('{"taps": 3}', "list of 4"),
        ('{"heads": 0}', "heads"),
        ('{"width": 25}', "heads"),
    ],
)
def test_sizes_that_are_none_are_refused(tmp_path, text, words):
    path = write_depth(tmp_path)
    (path.parent / FILE).write_text(text)
    with pytest.raises(UserError, match=words) as error:
        VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
    assert str(path.parent / FILE) in str(error.value)


def test_sizes_that_are_not_named_are_the_official_ones(tmp_path):
    path = write_depth(tmp_path)
    sizes = json.loads((path.parent / FILE).read_text())
    del sizes["grid"]
    (path.parent / FILE).write_text(json.dumps(sizes))
    with pytest.raises(UserError, match=r"pos_embed is \(1, 17, 24\), expected \(1, 1370, 24\)"):
        VIDEO_DEPTH_ANYTHING.load(CPU, tmp_path)
