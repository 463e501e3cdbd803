"""Our depth network: the official checkpoint's layout, and its values against a second network."""

# ruff: noqa: E402
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torchvision_cpu
from naive_depth import cubic_matrix, linear_matrix, naive_clip, naive_positions, naive_taps, sub, temporal
from one_thread import one_thread  # noqa: F401
from tiny_depth import TINY, depth_network

from scorer.estimators.video_depth_anything_network import VideoDepthNetwork
from scorer.estimators.video_depth_anything_sizes import LARGE, SMALL, Architecture
from scorer.estimators.video_depth_anything_temporal import PLACES, TemporalModule


def pair(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """A weight of that shape and a bias of its first side."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def encoder_layout(width: int, depth: int) -> dict[str, tuple[int, ...]]:
    layout = {"cls_token": (1, 1, width), "pos_embed": (1, 1370, width), "mask_token": (1, width)}
    layout |= pair("patch_embed.proj", width, 3, 14, 14) | pair("norm", width)
    for number in range(depth):
        block = f"blocks.{number}."
        layout |= pair(block + "norm1", width) | pair(block + "norm2", width)
        layout |= pair(block + "attn.qkv", 3 * width, width) | pair(block + "attn.proj", width, width)
        layout |= pair(block + "mlp.fc1", 4 * width, width) | pair(block + "mlp.fc2", width, 4 * width)
        layout |= {block + "ls1.gamma": (width,), block + "ls2.gamma": (width,)}
    return {f"pretrained.{name}": shape for name, shape in layout.items()}


def temporal_layout(channels: int) -> dict[str, tuple[int, ...]]:
    layout = pair("norm", channels)
    layout |= pair("proj_in", channels, channels) | pair("proj_out", channels, channels)
    block = "transformer_blocks.0."
    for number in range(2):
        attention = f"{block}attention_blocks.{number}."
        layout |= {f"{attention}{name}.weight": (channels, channels) for name in ("to_q", "to_k", "to_v")}
        layout |= pair(attention + "to_out.0", channels, channels)
        layout |= {attention + "pos_encoder.pe": (1, 32, channels)}
        layout |= pair(f"{block}norms.{number}", channels)
    layout |= pair(block + "ff.net.0.proj", 8 * channels, channels)
    layout |= pair(block + "ff.net.2", channels, 4 * channels) | pair(block + "ff_norm", channels)
    return layout


def head_layout(width: int, features: int, channels: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    layout = {}
    for number, each in enumerate(channels):
        layout |= pair(f"projects.{number}", each, width, 1, 1)
        layout |= {f"scratch.layer{number + 1}_rn.weight": (features, each, 3, 3)}
        fusion = f"scratch.refinenet{number + 1}."
        layout |= pair(fusion + "out_conv", features, features, 1, 1)
        for unit in (1, 2):
            for conv in (1, 2):
                layout |= pair(f"{fusion}resConfUnit{unit}.conv{conv}", features, features, 3, 3)
    layout |= pair("resize_layers.0", channels[0], channels[0], 4, 4)
    layout |= pair("resize_layers.1", channels[1], channels[1], 2, 2)
    layout |= pair("resize_layers.3", channels[3], channels[3], 3, 3)
    layout |= pair("scratch.output_conv1", features // 2, features, 3, 3)
    layout |= pair("scratch.output_conv2.0", 32, features // 2, 3, 3)
    layout |= pair("scratch.output_conv2.2", 1, 32, 1, 1)
    for number, each in enumerate((channels[2], channels[3], features, features)):
        prefix = f"motion_modules.{number}.temporal_transformer."
        layout |= {prefix + name: shape for name, shape in temporal_layout(each).items()}
    return {f"head.{name}": shape for name, shape in layout.items()}


@pytest.mark.parametrize(
    ("sizes", "width", "depth", "features", "channels", "parameters"),
    [
        (LARGE, 1024, 24, 256, (256, 512, 1024, 1024), 384_390_337),
        (SMALL, 384, 12, 64, (48, 96, 192, 384), 29_035_137),
    ],
    ids=["vitl", "vits"],
)
def test_the_layout_is_the_official_checkpoints(sizes, width, depth, features, channels, parameters):
    with torch.device("meta"):
        state = VideoDepthNetwork(sizes).state_dict()
    expected = encoder_layout(width, depth) | head_layout(width, features, channels)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == expected
    assert all(tensor.dtype == torch.float32 for tensor in state.values())
    # The encodings of order are no parameters; the rest was counted with this layout by hand.
    count = sum(tensor.numel() for name, tensor in state.items() if not name.endswith(".pe"))
    assert count == parameters


def test_the_official_hyperparameters():
    assert (LARGE.heads, LARGE.taps, LARGE.grid, LARGE.side) == (16, (4, 11, 17, 23), 37, 518)
    assert (SMALL.heads, SMALL.taps, SMALL.grid, SMALL.side) == (6, (2, 5, 8, 11), 37, 518)


@pytest.mark.parametrize(
    "change", [{"heads": 5}, {"heads": 0}, {"taps": (0, 1, 1, 2)}, {"taps": (0, 1, 2, 5)}, {"features": 40}]
)
def test_impossible_sizes_are_refused(change):
    with pytest.raises(ValueError):
        Architecture(**({**TINY.__dict__} | change))


def images(count: int, rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 3, 14 * rows, 14 * columns, generator=torch.Generator().manual_seed(seed))


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    assert torch.isfinite(expected).all()
    assert (found - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (4, 7), (5, 3), (2, 2), (1, 9)])
def test_the_encoder_is_the_naive_one(rows, columns):
    network = depth_network().pretrained
    batch = images(2, rows, columns)
    found = network(batch)
    expected = naive_taps(network.state_dict(), TINY.heads, TINY.depth, TINY.taps, batch)
    assert len(found) == 4
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == (2, TINY.width, rows, columns)
        close(ours, theirs)


@pytest.mark.parametrize(("rows", "columns"), [(37, 66), (66, 37), (28, 66), (37, 49)])
def test_positions_of_the_official_grid(rows, columns):
    sizes = Architecture(width=2, depth=4, heads=1, taps=(0, 1, 2, 3), features=32, channels=(1, 1, 32, 32))
    network = depth_network(sizes).pretrained
    found = network.positions(rows, columns)
    assert found.shape == (1, 1 + rows * columns, 2)
    close(found[0], naive_positions(network.pos_embed, rows, columns))
    # A square grid of the trained number of patches is left alone; another square one is not.
    assert network.positions(37, 37) is network.pos_embed
    plain = torch.nn.functional.interpolate(
        network.pos_embed[:, 1:].reshape(1, 37, 37, 2).permute(0, 3, 1, 2),
        size=(rows, columns),
        mode="bicubic",
    )
    assert (found[0, 1:] - plain[0].flatten(1).T).abs().max() > 1e-4  # the offset of 0.1 counts


def test_the_encoder_is_transformers_dinov2():
    torchvision_cpu.usable()
    transformers = pytest.importorskip("transformers")
    network = depth_network().pretrained
    config = transformers.Dinov2Config(
        hidden_size=TINY.width,
        num_hidden_layers=TINY.depth,
        num_attention_heads=TINY.heads,
        image_size=TINY.side,
        patch_size=14,
        mlp_ratio=4,
    )
    theirs = transformers.Dinov2Model(config).eval().requires_grad_(False)
    state = network.state_dict()
    mapped = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.mask_token": state["mask_token"],
        "embeddings.position_embeddings": state["pos_embed"],
    }
    for ours, name in (("patch_embed.proj", "embeddings.patch_embeddings.projection"), ("norm", "layernorm")):
        mapped |= {f"{name}.{part}": state[f"{ours}.{part}"] for part in ("weight", "bias")}
    for number in range(TINY.depth):
        block, target = sub(state, f"blocks.{number}."), f"encoder.layer.{number}."
        mapped |= {f"{target}{name}": block[name] for name in block if name.startswith(("norm", "mlp"))}
        mapped[target + "layer_scale1.lambda1"] = block["ls1.gamma"]
        mapped[target + "layer_scale2.lambda1"] = block["ls2.gamma"]
        # Versions of the library name these four differently, in this order.
        linears = [
            f"{target}attention.{name}"
            for name, module in theirs.encoder.layer[number].attention.named_modules()
            if isinstance(module, torch.nn.Linear)
        ]
        for part in ("weight", "bias"):
            parts = [*block[f"attn.qkv.{part}"].chunk(3), block[f"attn.proj.{part}"]]
            mapped |= {f"{name}.{part}": own for name, own in zip(linears, parts, strict=True)}
    missing, unexpected = theirs.load_state_dict(mapped, strict=False)
    assert not missing, missing
    assert not unexpected, unexpected
    batch = images(3, TINY.grid, TINY.grid)
    hidden = theirs(pixel_values=batch, output_hidden_states=True).hidden_states
    for found, tap in zip(network(batch), TINY.taps, strict=True):
        expected = theirs.layernorm(hidden[tap + 1])[:, 1:]
        close(found.flatten(2).transpose(1, 2), expected)


@pytest.mark.parametrize("frames", [1, 3, 32])
def test_a_temporal_module_is_the_naive_one(frames):
    network = depth_network().head.motion_modules[0]
    maps = torch.randn(frames, 32, 3, 4, generator=torch.Generator().manual_seed(2))
    close(network(maps), temporal(network.state_dict(), maps))


def test_places_do_not_see_each_other_and_parts_change_nothing():
    network = depth_network().head.motion_modules[0]
    side = 24
    assert side * side > PLACES
    maps = torch.randn(2, 32, side, side, generator=torch.Generator().manual_seed(3))
    found = network(maps)
    # A permutation of the places keeps each frame's norm, so it only permutes the answer.
    order = torch.randperm(side * side, generator=torch.Generator().manual_seed(4))
    shuffled = maps.flatten(2)[:, :, order].reshape(maps.shape)
    close(network(shuffled).flatten(2), found.flatten(2)[:, :, order])


def test_a_module_as_training_starts_encodes_order_with_sinusoids():
    pe = TemporalModule(64).temporal_transformer.transformer_blocks[0].attention_blocks[0].pos_encoder.pe
    rate = 10000 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    angle = torch.arange(32, dtype=torch.float64)[:, None] * rate
    close(pe[0, :, 0::2].double(), angle.sin())
    close(pe[0, :, 1::2].double(), angle.cos())


@pytest.mark.parametrize(("frames", "rows", "columns"), [(1, 4, 4), (5, 3, 5), (32, 2, 3)])
def test_the_network_is_the_naive_one(frames, rows, columns):
    network = depth_network()
    clip = images(frames, rows, columns)
    found = network(clip[None])[0]
    expected = naive_clip(network.state_dict(), TINY.heads, TINY.depth, TINY.taps, clip)
    assert found.shape == (frames, 14 * rows, 14 * columns)
    assert expected.std() > 1e-3  # the last ReLU left something to compare
    close(found, expected)


def test_clips_of_a_batch_do_not_see_each_other():
    network = depth_network()
    clips = torch.stack([images(4, 2, 3, seed) for seed in (5, 6)])
    together = network(clips)
    assert together.shape == (2, 4, 28, 42)
    for clip, found in zip(clips, together, strict=True):
        close(network(clip[None])[0], found)
    assert (together[0] - together[1]).abs().max() > 1e-3


def test_a_part_of_a_window_is_decoded_as_within_the_whole():
    network = depth_network()
    seen = network.encode(images(11, 2, 3))
    whole = network.decode(seen, slice(0, 11))
    close(network.decode(seen, slice(3, 10)), whole[3:10])
    close(network.decode(seen, slice(10, 11)), whole[10:])


def test_the_references_agree_with_torch():
    """The naive resizes themselves."""
    values = torch.randn(1, 1, 5, 7, generator=torch.Generator().manual_seed(7))
    expected = torch.nn.functional.interpolate(values, size=(9, 11), mode="bilinear", align_corners=True)
    close(linear_matrix(5, 9) @ values @ linear_matrix(7, 11).T, expected)
    assert torch.allclose(torch.from_numpy(cubic_matrix(5, 8)).sum(1), torch.ones(8, dtype=torch.float64))
