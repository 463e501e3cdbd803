"""Our point network: the official checkpoint's layout, its parts against timm and loops, and loading."""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import dataclasses
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torchvision_cpu
from naive_uni3d import naive_encode, naive_farthest, naive_nearest
from one_thread import one_thread  # noqa: F401
from test_depth_network import close, pair
from tiny_uni3d import TINY, uni3d_network, write_uni3d

from contract.errors import UserError
from scorer.estimators.architecture import FILE
from scorer.estimators.inert_pickle import Inert, load_inert
from scorer.estimators.uni3d import UNI3D, PointModel
from scorer.estimators.uni3d_cloud import unit_cloud
from scorer.estimators.uni3d_groups import farthest_points, grouped, nearest_points
from scorer.estimators.uni3d_network import Uni3DNetwork
from scorer.estimators.uni3d_sizes import LARGE, Architecture

CPU = torch.device("cpu")


def expected_layout() -> dict[str, tuple[int, ...]]:
    """Of the official checkpoint, from the protocol's tables."""
    layout: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, 1024), "cls_pos": (1, 1, 1024)}
    for name, first, inner, last in (("first_conv", 6, 128, 256), ("second_conv", 512, 512, 512)):
        layout |= pair(f"encoder.{name}.0", inner, first, 1) | pair(f"encoder.{name}.3", last, inner, 1)
        layout |= pair(f"encoder.{name}.1", inner) | {f"encoder.{name}.1.num_batches_tracked": ()}
        layout |= {f"encoder.{name}.1.running_{which}": (inner,) for which in ("mean", "var")}
    layout |= pair("encoder2trans", 1024, 512) | pair("trans2embed", 1024, 1024)
    layout |= pair("pos_embed.0", 128, 3) | pair("pos_embed.2", 1024, 128)
    for number in range(24):
        block = f"visual.blocks.{number}."
        layout |= pair(block + "norm1", 1024) | pair(block + "norm2", 1024)
        for name in ("q_proj", "v_proj", "proj"):
            layout |= pair(f"{block}attn.{name}", 1024, 1024)
        layout |= {block + "attn.k_proj.weight": (1024, 1024)}
        layout |= pair(block + "mlp.fc1_g", 2730, 1024) | pair(block + "mlp.fc1_x", 2730, 1024)
        layout |= pair(block + "mlp.norm", 2730) | pair(block + "mlp.fc2", 1024, 2730)
    layout |= pair("visual.fc_norm", 1024) | pair("visual.head", 1000, 1024)
    layout |= {"visual.cls_token": (1, 1, 1024), "visual.pos_embed": (1, 1025, 1024)}
    layout |= pair("visual.patch_embed.proj", 1024, 3, 14, 14)
    return {"logit_scale": ()} | {f"point_encoder.{name}": shape for name, shape in layout.items()}


def test_the_layout_is_the_official_checkpoints():
    with torch.device("meta"):
        network = Uni3DNetwork(LARGE)
    state = network.state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == expected_layout()
    assert len(state) == 493
    # As counted in the reference.
    assert sum(parameter.numel() for parameter in network.parameters()) == 307_350_313


def test_the_official_hyperparameters():
    assert (LARGE.heads, LARGE.groups, LARGE.group_size, LARGE.hidden) == (16, 512, 64, 2730)


@pytest.mark.parametrize("change", [{"heads": 5}, {"heads": 0}, {"groups": 0}, {"group_size": 0}])
def test_impossible_sizes_are_refused(change):
    with pytest.raises(ValueError):
        Architecture(**({**TINY.__dict__} | change))


def timm_eva(**sizes):
    torchvision_cpu.usable()
    timm = pytest.importorskip("timm")
    return timm.create_model("eva02_large_patch14_448", **sizes)


def test_the_transformer_has_the_layout_of_timms():
    with torch.device("meta"):
        theirs = timm_eva(depth=2).state_dict()  # two of the equal blocks, to save time
        ours = Uni3DNetwork(dataclasses.replace(LARGE, depth=2)).point_encoder.visual.state_dict()
    assert {key: tensor.shape for key, tensor in ours.items()} == {
        key: tensor.shape for key, tensor in theirs.items()
    }


def test_the_transformer_is_timms_without_rotary_embeddings():
    ours = uni3d_network().point_encoder.visual
    theirs = timm_eva(
        img_size=28, embed_dim=TINY.width, depth=TINY.depth, num_heads=TINY.heads, num_classes=TINY.classes
    )
    theirs.load_state_dict(ours.state_dict(), strict=True)
    theirs.eval().requires_grad_(False)
    tokens = torch.randn(3, 17, TINY.width, generator=torch.Generator().manual_seed(1))
    for block, reference in zip(ours.blocks, theirs.blocks, strict=True):
        close(block(tokens), reference(tokens))
    expected = tokens
    for block in theirs.blocks:
        expected = block(expected)
    close(ours(tokens), theirs.fc_norm(theirs.norm(expected[:, 0])))
    assert isinstance(theirs.norm, torch.nn.Identity)


def cloud(count: int, seed: int) -> np.ndarray:
    return unit_cloud(np.random.default_rng(seed).normal(size=(count, 3)))


def test_the_farthest_points_are_those_of_the_reference():
    points = torch.from_numpy(unit_cloud(np.random.default_rng(5).normal(size=(500, 3))))
    assert farthest_points(points, 8).tolist() == [0, 290, 213, 267, 188, 167, 442, 106]


@pytest.mark.parametrize("seed", range(5))
def test_the_farthest_points_are_the_naive_ones(seed):
    points = cloud(60, seed)
    assert farthest_points(torch.from_numpy(points), 25).tolist() == naive_farthest(points, 25)


def test_of_equally_far_points_the_first_is_taken():
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], np.float32)
    points = np.concatenate([corners, corners])
    found = farthest_points(torch.from_numpy(points), 16).tolist()
    assert found == naive_farthest(points, 16)
    assert found[:2] == [0, 7]
    assert sorted(found[:8]) == list(range(8))  # every corner before any again
    assert found[8:] == [0] * 8  # nothing is farther than the first
    assert farthest_points(torch.from_numpy(points), 1).tolist() == [0]


def test_ten_thousand_points_take_a_moment():
    points = torch.from_numpy(cloud(10_000, 9))
    start = time.process_time()
    assert len(set(farthest_points(points, 512).tolist())) == 512
    assert time.process_time() - start < 5  # hundredths of a second; a loop over points takes minutes


@pytest.mark.parametrize("count", [1, 7, 60])
def test_the_nearest_points_are_the_naive_ones(count):
    points = cloud(60, 11)
    found = nearest_points(torch.from_numpy(points), torch.from_numpy(points[:5]), count)
    assert found.shape == (5, count)
    for row, centre in zip(found.tolist(), points, strict=False):
        assert set(row) == naive_nearest(points, centre, count)


def test_groups_are_relative_to_their_centres():
    points = torch.from_numpy(cloud(100, 12))
    centres, near = grouped(points, 9, 6)
    assert centres.shape == (9, 3)
    assert near.shape == (9, 6, 3)
    assert (near.square().sum(-1).min(dim=1).values == 0).all()  # the centre is one of its group
    close(torch.cdist(near + centres[:, None], points).min(dim=-1).values, torch.zeros(9, 6), 1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_network_is_the_naive_one(seed):
    network = uni3d_network(seed=seed)
    points = cloud(70, seed)
    found = network(torch.from_numpy(points)[None], 0.4)[0]
    expected = naive_encode(
        network.state_dict(), points, TINY.groups, TINY.group_size, TINY.heads, TINY.depth
    )
    close(found, expected)


def test_every_weight_that_is_said_to_be_used_is():
    """What is perturbed changes the vector, except what the protocol calls unused."""
    network = uni3d_network()
    points = torch.from_numpy(cloud(70, 0))[None]
    before = network(points, 0.4)
    unused = ("logit_scale", "visual.cls_token", "visual.pos_embed", "visual.patch_embed", "visual.head")
    for name, parameter in network.named_parameters():
        kept = parameter.clone()
        parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
        changed = bool((network(points, 0.4) - before).abs().max() > 1e-7)
        parameter.copy_(kept)
        assert changed != any(each in name for each in unused), name


def clouds(count: int) -> np.ndarray:
    return np.stack([cloud(80, seed) for seed in range(count)])


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_stored_checkpoint_encodes_clouds_as_the_naive_network(tmp_path, prefix):
    write_uni3d(tmp_path, prefix=prefix)
    found = UNI3D.load(CPU, tmp_path).encode(clouds(2))
    assert found.dtype == np.float32
    assert found.shape == (2, 1024)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6
    state = uni3d_network().state_dict()
    for points, row in zip(clouds(2), found, strict=True):
        expected = naive_encode(state, points, TINY.groups, TINY.group_size, TINY.heads, TINY.depth)
        assert np.abs(row - expected.numpy()).max() < 1e-5


def test_any_batch_gives_the_same_rows(tmp_path):
    write_uni3d(tmp_path)
    model = UNI3D.load(CPU, tmp_path)
    together = model.encode(clouds(6))
    assert np.abs(together - np.concatenate([model.encode(one[None]) for one in clouds(6)])).max() < 1e-5
    assert (together == model.encode(clouds(6))).all()
    assert model.encode(np.empty((0, 80, 3), np.float32)).shape == (0, 1024)


def test_memory_that_runs_out_halves_the_batch_once():
    network = uni3d_network()

    def tight(most):
        def run(batch, colour):
            if len(batch) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return network(batch, colour)

        return run

    expected = PointModel(network, CPU, TINY).encode(clouds(5))
    assert np.abs(PointModel(tight(2), CPU, TINY).encode(clouds(5)) - expected).max() < 1e-5
    with pytest.raises(MemoryError):
        PointModel(tight(1), CPU, TINY).encode(clouds(5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((1, 15, 3)), "at least 16"),
        (np.zeros((80, 3)), "clouds are"),
        (np.zeros((1, 80, 6)), "clouds are"),
        (np.full((1, 80, 3), np.nan), "finite"),
    ],
)
def test_what_are_no_clouds_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        PointModel(uni3d_network(), CPU, TINY).encode(given)


def test_names_are_those_of_the_protocol():
    assert UNI3D.name == UNI3D.directory == "uni3d-l"
    assert UNI3D.requires == ("torch",)


def test_a_missing_checkpoint_names_the_command(tmp_path):
    with pytest.raises(UserError, match=r"model\.pt.*download_checkpoints\.py"):
        UNI3D.load(CPU, tmp_path)


def test_loading_is_strict(tmp_path):
    path = write_uni3d(tmp_path)
    whole = uni3d_network().state_dict()
    name = "point_encoder.visual.blocks.1.attn.k_proj.weight"
    less = {key: tensor for key, tensor in whole.items() if key != name}
    for held, words in (
        ({"module": less}, "1 missing"),
        ({"module": whole | {name.replace("weight", "bias"): torch.zeros(24)}}, "k_proj.bias"),
        ({"module": whole | {name: torch.zeros(24, 23)}}, "k_proj"),
        ({"state_dict": whole}, "a member 'module'"),
        (whole, "a member 'module'"),
        ([whole], "a member 'module'"),
        ({"module": {}}, "missing"),
        ({"module": argparse.Namespace()}, "no dictionary"),
        # The first name decides for all.
        (
            {"module": {f"module.{key}" if key == name else key: each for key, each in whole.items()}},
            "k_proj",
        ),
    ):
        torch.save(held, path)
        with pytest.raises(UserError, match=words):
            UNI3D.load(CPU, tmp_path)
    (path.parent / FILE).unlink()
    torch.save({"module": whole}, path)
    with pytest.raises(UserError, match="not this model's checkpoint"):
        UNI3D.load(CPU, tmp_path)


class Harmful:
    """Unpickled without restriction, it would print."""

    def __reduce__(self):
        return (print, ("a checkpoint ran code",))


class Options:
    """A class of ours, with a state that must not be looked at."""

    def __init__(self) -> None:
        self.rate = 0.1

    def __setstate__(self, state):
        raise AssertionError("ran")


def test_what_is_no_tensor_is_passed_over_and_nothing_is_run(tmp_path, capsys):
    path = write_uni3d(tmp_path)
    held = torch.load(path, weights_only=False)
    expected = UNI3D.load(CPU, tmp_path).encode(clouds(1))
    held |= {"harm": Harmful(), "options": [Options()], "best": np.float64(0.5), "type": Options}
    torch.save(held, path)
    read = load_inert(path)
    assert isinstance(read["harm"], Inert)
    assert isinstance(read["options"][0], Inert)
    assert isinstance(read["args"], Inert)
    assert vars(read["options"][0]) == {}
    assert read["epoch"] == 7
    assert (UNI3D.load(CPU, tmp_path).encode(clouds(1)) == expected).all()
    assert "ran code" not in capsys.readouterr().out
    # The permission ends with the reading.
    with pytest.raises(Exception, match=r"weights_only|Unsupported"):
        torch.load(path, weights_only=True)


class Command:
    def __reduce__(self):
        import os

        return (os.system, ("echo a checkpoint ran code",))


def test_a_hostile_or_damaged_checkpoint_is_refused(tmp_path, capfd):
    path = write_uni3d(tmp_path)
    good = path.read_bytes()
    torch.save({"module": Command()}, path)
    for content in (path.read_bytes(), b"", b"no checkpoint", good[: len(good) // 2]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"model\.pt"):
            UNI3D.load(CPU, tmp_path)
    assert "ran code" not in capfd.readouterr().out
