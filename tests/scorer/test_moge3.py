"""The point mapper's adapter, with the real package or a double of it."""

# ruff: noqa: E402
from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import doubles
from one_thread import one_thread  # noqa: F401

from contract.errors import UserError
from scorer.estimators.moge3 import MOGE3, PointMapper

CPU = torch.device("cpu")
REAL = doubles.path_for("moge") is None


@pytest.fixture
def double(monkeypatch):
    """The double on the path; the real package is used where it is installed, and then this is skipped."""
    if REAL:
        pytest.skip("the real package is installed")
    monkeypatch.syspath_prepend(str(doubles.path_for("moge")))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "moge"]:
        del sys.modules[name]


@pytest.mark.parametrize(("height", "width"), [(4, 6), (1, 1), (7, 3)])
def test_points_through_the_double(tmp_path, double, height, width):
    doubles.write_moge(tmp_path)
    rng = np.random.default_rng(height)
    image = rng.integers(1, 256, (height, width, 3), np.uint8)
    image[rng.random((height, width)) < 0.3] = 0
    image.flags.writeable = False  # as decoders give them
    model = MOGE3.load(CPU, tmp_path)
    points, mask, intrinsics = model.points(image)
    assert (points.dtype, mask.dtype, intrinsics.dtype) == (np.float32, np.bool_, np.float32)
    assert (points.shape, mask.shape) == ((height, width, 3), (height, width))
    assert intrinsics.tolist() == [[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]]
    assert (mask == image.any(axis=2)).all()
    for row in range(height):
        for column in range(width):
            if not mask[row, column]:
                assert np.isnan(points[row, column]).all()
                continue
            depth = 2 + image[row, column, 0] / 255
            x, y = (column + 0.5) / width - 0.5, (row + 0.5) / height - 0.5
            assert np.abs(points[row, column] - [x * depth, y * depth, depth]).max() < 1e-6


def test_the_package_is_asked_as_the_protocol_says(tmp_path, double):
    doubles.write_moge(tmp_path)
    model = MOGE3.load(CPU, tmp_path)
    model.points(np.full((2, 3, 3), 9, np.uint8))
    assert model._model.calls == [(9, 3)]


def test_an_image_of_nothing_known_has_no_point(tmp_path, double):
    doubles.write_moge(tmp_path)
    points, mask, _ = MOGE3.load(CPU, tmp_path).points(np.zeros((3, 3, 3), np.uint8))
    assert not mask.any()
    assert np.isnan(points).all()


class Answering:
    """A model that gives what it is told."""

    def __init__(self, **members) -> None:
        self.members = members

    def infer(self, image, resolution_level, refine_steps):
        return self.members


def answer(height: int = 2, width: int = 3):
    return {
        "points": torch.zeros(height, width, 3),
        "mask": torch.ones(height, width, dtype=torch.bool),
        "intrinsics": torch.eye(3),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"points": torch.zeros(3, 2, 3)},
        {"points": torch.zeros(1, 2, 3, 3)},
        {"mask": torch.ones(2, 2)},
        {"intrinsics": torch.eye(4)},
    ],
)
def test_answers_of_other_shapes_are_refused(change):
    with pytest.raises(ValueError, match="shapes"):
        PointMapper(Answering(**(answer() | change)), CPU).points(np.zeros((2, 3, 3), np.uint8))


def test_the_packages_own_memory_is_not_written_to():
    members = answer()
    members["mask"][0, 0] = False
    points, _, _ = PointMapper(Answering(**members), CPU).points(np.zeros((2, 3, 3), np.uint8))
    assert np.isnan(points[0, 0]).all()
    assert torch.isfinite(members["points"]).all()


def test_half_precision_answers_become_float32():
    members = {name: each.half() for name, each in answer().items()}
    points, mask, intrinsics = PointMapper(Answering(**members), CPU).points(np.zeros((2, 3, 3), np.uint8))
    assert (points.dtype, mask.dtype, intrinsics.dtype) == (np.float32, np.bool_, np.float32)
    assert mask.all()


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((2, 3, 3)),
        np.zeros((2, 3), np.uint8),
        np.zeros((2, 3, 4), np.uint8),
        np.zeros((0, 3, 3), np.uint8),
    ],
)
def test_what_is_no_image_is_refused(image):
    with pytest.raises(ValueError, match="uint8"):
        PointMapper(Answering(**answer()), CPU).points(image)


def test_memory_that_runs_out_is_the_machines_fault():
    class Tight:
        def infer(self, image, resolution_level, refine_steps):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError):
        PointMapper(Tight(), CPU).points(np.zeros((2, 3, 3), np.uint8))


def test_the_double_refuses_what_is_no_checkpoint(tmp_path, double):
    path = doubles.write_moge(tmp_path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"model\.pt"):
        MOGE3.load(CPU, tmp_path)


def test_a_missing_checkpoint_names_the_command(tmp_path, double):
    with pytest.raises(UserError, match=r"model\.pt.*download_checkpoints\.py"):
        MOGE3.load(CPU, tmp_path)


def test_a_missing_package_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "moge", None)
    doubles.write_moge(tmp_path)
    with pytest.raises(UserError, match=r"moge is not installed.*pip install"):
        MOGE3.load(CPU, tmp_path)


def test_an_older_package_is_said_to_be_unusable(tmp_path, monkeypatch):
    (tmp_path / "other" / "moge").mkdir(parents=True)
    (tmp_path / "other" / "moge" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    for name in [name for name in sys.modules if name.split(".")[0] == "moge"]:
        monkeypatch.delitem(sys.modules, name)
    doubles.write_moge(tmp_path)
    with pytest.raises(UserError, match="moge cannot be used"):
        MOGE3.load(CPU, tmp_path)
    sys.modules.pop("moge", None)


@pytest.mark.skipif(not REAL, reason="the moge package comes from git only and is not installed")
def test_the_real_package_takes_the_calls_that_we_make():
    from moge.model.v3 import MoGeModel

    assert callable(MoGeModel.from_pretrained)
    assert {"resolution_level", "refine_steps"} <= inspect.signature(MoGeModel.infer).parameters.keys()


def test_names_are_those_of_the_protocol():
    assert MOGE3.name == MOGE3.directory == "moge-3-vitl"
    assert MOGE3.requires == ("torch", "moge")
