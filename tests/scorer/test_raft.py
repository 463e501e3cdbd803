"""RAFT: pixels, padding, units and pairs around torchvision's network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch

from contract.errors import UserError
from scorer.estimators.raft import ITERATIONS, RAFT, Raft, padded

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads of a loaded machine wait for each other longer than these networks take."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make(tmp_path_factory.mktemp("store"), RAFT.directory)


@pytest.fixture(scope="module")
def raft(store: Path) -> Raft:
    return RAFT.load(CPU, store)


def frames(count: int, height: int, width: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


class Noted(torch.nn.Module):
    """In the network's place: keeps what it is given and answers with chosen maps."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer, self.calls = answer, []

    def forward(self, one: Any, two: Any, num_flow_updates: int) -> list[Any]:
        self.calls.append((one, two, num_flow_updates))
        return [torch.full((len(one), 2, *one.shape[2:]), -9.0), self.answer(one, two)]


def columns_and_rows(one: Any, two: Any) -> Any:
    """At each pixel its own coordinates (x, y)."""
    height, width = one.shape[2:]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([x, y]).float().expand(len(one), 2, height, width)


@pytest.mark.parametrize(("height", "width"), [(128, 136), (131, 149), (200, 129), (50, 70), (1, 1)])
def test_padding_goes_right_and_down_and_is_cut_off(height: int, width: int) -> None:
    network = Noted(columns_and_rows)
    video = frames(2, height, width)
    flow = Raft(network, CPU).flow(video)
    assert flow.shape == (1, height, width, 2)
    assert flow.dtype == np.float32
    # (x, y) of the video's own pixels: nothing was shifted, scaled or taken from another prediction.
    assert np.array_equal(flow[0, :, :, 0], np.broadcast_to(np.arange(width), (height, width)))
    assert np.array_equal(flow[0, :, :, 1], np.broadcast_to(np.arange(height)[:, None], (height, width)))
    ((one, two, updates),) = network.calls
    assert updates == ITERATIONS == 12
    for image, frame in ((one, video[0]), (two, video[1])):
        assert image.shape[2] % 8 == image.shape[3] % 8 == 0
        rows = np.minimum(np.arange(image.shape[2]), height - 1)
        cols = np.minimum(np.arange(image.shape[3]), width - 1)
        expected = 2 * (frame[rows][:, cols] / 255.0) - 1
        assert np.abs(image[0].permute(1, 2, 0).numpy() - expected).max() < 1e-6


def test_padded_sides() -> None:
    assert [padded(side) for side in (1, 128, 129, 136, 1080, 1920)] == [128, 128, 136, 136, 1080, 1920]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_consecutive_pair_once(count: int) -> None:
    network = Noted(lambda one, two: torch.stack([one[:, 0], two[:, 0]], 1))
    video = np.zeros((count, 8, 16, 3), np.uint8) + np.arange(count, dtype=np.uint8)[:, None, None, None] * 51
    flow = Raft(network, CPU).flow(video)
    assert flow.shape == (count - 1, 8, 16, 2)
    values = (flow[:, 0, 0] + 1) / 2 * 5
    expected = np.array([[index, index + 1] for index in range(count - 1)]).reshape(-1, 2)
    assert np.allclose(values, expected, atol=1e-5)
    assert [len(call[0]) for call in network.calls] == [2] * ((count - 1) // 2) + [1] * ((count - 1) % 2)


def test_out_of_memory_halves_the_pairs() -> None:
    def limited(one: Any, two: Any) -> Any:
        if len(one) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return torch.stack([one[:, 0], two[:, 0]], 1)

    video = np.zeros((3, 8, 16, 3), np.uint8) + np.array([0, 51, 102], np.uint8)[:, None, None, None]
    values = (Raft(Noted(limited), CPU).flow(video)[:, 0, 0] + 1) / 2 * 5
    assert np.allclose(values, [[0, 1], [1, 2]], atol=1e-5)

    def none(one: Any, two: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(MemoryError, match="even on half a batch"):
        Raft(Noted(none), CPU).flow(video)


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((0, 8, 8, 3), np.uint8), np.zeros((2, 8, 8, 3)), np.zeros((2, 8, 8), np.uint8)],
    ids=["none", "float", "grey"],
)
def test_frames_of_another_kind(raft: Raft, wrong: Any) -> None:
    with pytest.raises(ValueError, match="frames"):
        raft.flow(wrong)


def test_the_real_network_equals_torchvision_used_by_hand(raft: Raft, store: Path) -> None:
    from torchvision.models.optical_flow import raft_large
    from torchvision.transforms._presets import OpticalFlow

    # A texture that is shifted by (3, 2) pixels.
    texture = frames(1, 160, 160)[0]
    video = np.stack([texture[8 : 8 + 136, 8 : 8 + 130], texture[6 : 6 + 136, 5 : 5 + 130]])
    network = raft_large(weights=None).eval()
    network.load_state_dict(
        torch.load(store / RAFT.directory / "raft_large_C_T_SKHT_V2.pth", weights_only=True)
    )
    images = torch.from_numpy(np.pad(video, ((0, 0), (0, 0), (0, 6), (0, 0)), mode="edge")).permute(
        0, 3, 1, 2
    )
    with torch.inference_mode():
        expected = network(*OpticalFlow()(images[:1], images[1:]))[-1][0, :, :, :130].permute(1, 2, 0).numpy()
    flow = raft.flow(video)
    assert flow.shape == (1, 136, 130, 2)
    assert np.abs(flow[0] - expected).max() < 1e-3
    assert np.array_equal(flow, raft.flow(video))


def test_a_pair_is_the_same_alone_and_in_company(raft: Raft) -> None:
    video = frames(3, 128, 128)
    together = raft.flow(video)
    alone = np.concatenate([raft.flow(video[:2]), raft.flow(video[1:])])
    assert np.abs(together - alone).max() < 1e-3 * max(1.0, np.abs(alone).max())


def test_a_foreign_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--only raft-large"):
        RAFT.load(CPU, tmp_path)
    path = tmp_path / RAFT.directory / "raft_large_C_T_SKHT_V2.pth"
    path.parent.mkdir()
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(UserError, match=r"missing .* and 1 unknown \(weight\)"):
        RAFT.load(CPU, tmp_path)
