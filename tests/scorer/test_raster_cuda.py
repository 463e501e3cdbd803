"""The CUDA adapter against a double that answers exactly the calls it makes. No GPU is involved."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from raster_scenes import IDENTITY, K_S, scene_s

from scorer.geometry import raster_cpu, raster_cuda
from scorer.geometry.raster import choose_device, rasterize, rasterize_raw, visible_faces


class Tensor:
    """As much of a tensor as the adapter uses."""

    def __init__(self, array: np.ndarray, device: str = "cpu") -> None:
        self.array, self.device = array, device

    def to(self, device: str) -> Tensor:
        return Tensor(self.array, device)

    def cpu(self) -> Tensor:
        return Tensor(self.array)

    def numpy(self) -> np.ndarray:
        assert self.device == "cpu"
        return self.array


class Double:
    """PyTorch and nvdiffrast as the adapter sees them; draws with the CPU kernels."""

    def __init__(self) -> None:
        self.contexts: list[str] = []

    def context(self, *, device: str) -> tuple[str, str]:
        self.contexts.append(device)
        return ("context", device)

    def rasterize(self, context, positions, triangles, *, resolution, grad_db):
        device = context[1]
        assert context[0] == "context"
        assert positions.device == triangles.device == device
        assert grad_db is False
        pos, tri = positions.array, triangles.array
        assert pos.dtype == np.float32
        assert pos.shape[::2] == (1, 4)
        assert tri.dtype == np.int32
        assert np.isfinite(pos).all()
        height, width = resolution
        clip = np.ascontiguousarray(pos[0][:, [0, 1, 3]])
        face = raster_cpu.draw(clip, tri, height, width)
        _, bary = raster_cpu.interpolate(clip, tri, face, barycentrics=True)
        buffer = np.stack([*bary, np.zeros_like(bary[0]), (face + 1).astype(np.float32)], axis=-1)
        return Tensor(buffer[None].astype(np.float32), device), Tensor(
            np.zeros((1, height, width, 0)), device
        )

    def interpolate(self, attribute, raw, triangles):
        assert attribute.device == raw.device == triangles.device
        values, buffer = attribute.array[0], raw.array[0]
        assert attribute.array.flags.c_contiguous
        face = buffer[..., 3].astype(int) - 1
        b0, b1 = buffer[..., :1], buffer[..., 1:2]
        a, b, c = (values[triangles.array[face, n]] for n in range(3))
        out = np.where(face[..., None] >= 0, b0 * a + b1 * b + (np.float32(1) - b0 - b1) * c, 0)
        return Tensor(out[None].astype(np.float32), raw.device), None


@pytest.fixture
def double(monkeypatch):
    answers = Double()
    torch, package, library = ModuleType("torch"), ModuleType("nvdiffrast"), ModuleType("nvdiffrast.torch")
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.is_available = lambda: True
    torch.from_numpy = Tensor
    library.RasterizeCudaContext = answers.context
    library.rasterize, library.interpolate = answers.rasterize, answers.interpolate
    package.torch = library
    for module in (torch, package, library):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(raster_cuda, "find_spec", lambda name: True)
    raster_cuda.available.cache_clear()
    raster_cuda._context.cache_clear()
    yield answers
    raster_cuda.available.cache_clear()
    raster_cuda._context.cache_clear()


def test_the_adapter_gives_back_what_the_library_drew(double):
    verts, faces, _ = scene_s(1)
    cpu = rasterize_raw(verts, faces, K_S, IDENTITY, 48, 64, device="cpu")
    assert double.contexts == []
    for device in ("cuda", None, "cuda:1"):
        raw = rasterize_raw(verts, faces, K_S, IDENTITY, 48, 64, device=device)
        for name in ("face", "depth", "b0", "b1"):
            got, expected = getattr(raw, name), getattr(cpu, name)
            assert got.dtype == expected.dtype
            assert (got == expected).all()
        assert (visible_faces(verts, faces, K_S, IDENTITY, 48, 64, device) == cpu.face).all()
    assert double.contexts == ["cuda", "cuda:1"]  # one context a device, kept


def test_misses_and_corners_that_are_not_finite(double):
    verts, faces, _ = scene_s(0)
    more = np.concatenate([verts, [[np.nan, 0, 5], [np.inf, 1, 1]]])
    n = len(verts)
    hostile = np.concatenate([[[n, 0, 1], [n + 1, 2, 3]], faces[2:], [[0, n, n + 1]]])
    depth, face = rasterize(more, hostile, K_S, IDENTITY, 48, 64, "cuda")
    cpu_depth, cpu_face = rasterize(more, hostile, K_S, IDENTITY, 48, 64, "cpu")
    assert (cpu_face == -1).any()
    assert (face == cpu_face).all()
    assert (depth == cpu_depth).all()


def test_nothing_to_draw_does_not_touch_the_device(double):
    depth, face = rasterize(np.zeros((0, 3)), np.zeros((0, 3), int), K_S, IDENTITY, 4, 4, "cuda")
    assert (face == -1).all()
    _, face = rasterize(np.full((3, 3), np.nan), [[0, 1, 2]], K_S, IDENTITY, 4, 4, "cuda")
    assert (face == -1).all()
    assert np.isposinf(depth).all()
    assert double.contexts == []


def test_choice_of_the_device(double):
    assert choose_device(None) == "cuda"
    assert choose_device("cpu") == "cpu"
    assert choose_device("cuda:1") == "cuda:1"
    # The library numbers faces in float32: too many are drawn on the CPU, or refused when CUDA is asked for.
    assert choose_device(None, 2**24) == "cpu"
    with pytest.raises(ValueError, match="16777216 faces"):
        choose_device("cuda", 2**24)
    sys.modules["torch"].cuda.is_available = lambda: False
    raster_cuda.available.cache_clear()
    assert choose_device(None) == "cpu"
