"""DINOv3 and TIPSv2: what goes into the network, which block is read, and whose weights are loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
import torchvision_cpu
from PIL import Image

from contract.errors import UserError
from scorer.estimators import backbone
from scorer.estimators.backbone import Backbone, BackboneModel
from scorer.estimators.dinov3 import DINOV3, GEOPHYS_LAYER
from scorer.estimators.tipsv2 import LARGE, TIPSV2

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
    """A model store with both; TIPSv2 with two blocks."""
    return tiny_models.make(tmp_path_factory.mktemp("store"), DINOV3.directory, TIPSV2.directory)


@pytest.fixture(scope="module")
def dinov3(store: Path) -> Backbone:
    return DINOV3.load(CPU, store)


@pytest.fixture(scope="module")
def tips(store: Path) -> Backbone:
    return TIPSV2.load(CPU, store)


@pytest.fixture(scope="module")
def tips_24(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """TIPSv2 with as many blocks as it has; read at small sizes, since it is slow at its own."""
    root = tmp_path_factory.mktemp("deep")
    tiny_models.tipsv2(root, num_hidden_layers=24)
    return TIPSV2.load(CPU, root)


@pytest.fixture(params=["dinov3", "tips_24"])
def deep(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["dinov3", "tips"])
def loaded(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)


def frames(count: int, height: int = 45, width: int = 61, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def cosine(one: Any, other: Any) -> Any:
    return (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)


def test_a_video_is_like_itself_and_not_like_another(loaded: Backbone) -> None:
    video = frames(3)
    embedded = loaded.embed(video)
    assert embedded.dtype == np.float32
    assert embedded.shape[0] == 3
    assert np.allclose(cosine(embedded, loaded.embed(video.copy())), 1, atol=1e-6)
    assert cosine(embedded, loaded.embed(255 - video)).max() < 1 - 1e-5


def naive_resize(image: Any, size: int) -> Any:
    """Triangle filter as wide as a source step, half-pixel centres, one axis after the other; float64."""

    def matrix(source: int) -> Any:
        scale = source / size
        width = max(1.0, scale)
        rows = np.zeros((size, source))
        for target in range(size):
            centre = (target + 0.5) * scale
            weight = np.maximum(0, 1 - np.abs(np.arange(source) + 0.5 - centre) / width)
            rows[target] = weight / weight.sum()
        return rows

    rows = np.einsum("ij,jkc->ikc", matrix(image.shape[0]), image, optimize=True)
    return np.einsum("ikc,lk->ilc", rows, matrix(image.shape[1]), optimize=True)


@pytest.mark.parametrize(("height", "width"), [(45, 61), (300, 500), (224, 224), (1, 3)])
@pytest.mark.parametrize("kind", [DINOV3, TIPSV2], ids=["dinov3", "tips"])
def test_resize_and_normalisation_against_a_naive_version(
    kind: BackboneModel, height: int, width: int
) -> None:
    video = frames(1, height, width)
    reader = Backbone(
        kind, backbone.Parts(torch.nn.Identity(), torch.nn.ModuleList(), torch.nn.Identity(), 1), CPU
    )
    pixels = reader._pixels(video, kind.image_size, kind.image_size)[0].permute(1, 2, 0).numpy()
    expected = naive_resize(video[0] / 255.0, kind.image_size)
    if kind is DINOV3:
        expected = (expected - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert pixels.dtype == np.float32
    assert np.abs(pixels - expected).max() < 1e-4


def test_resize_against_pillow() -> None:
    video = frames(1, 300, 500)
    reader = Backbone(
        TIPSV2, backbone.Parts(torch.nn.Identity(), torch.nn.ModuleList(), torch.nn.Identity(), 1), CPU
    )
    pixels = reader._pixels(video, 448, 448)[0].permute(1, 2, 0).numpy() * 255
    pillow = np.asarray(Image.fromarray(video[0]).resize((448, 448), Image.Resampling.BILINEAR), np.float64)
    assert np.abs(pixels - pillow).max() <= 1.01  # Pillow rounds after each axis


def test_batches_change_nothing(loaded: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    video = frames(5)
    together = loaded.embed(video)
    assert np.array_equal(loaded.embed(video), together)
    tokens = loaded.patches(video)
    for size in (1, 3):
        monkeypatch.setattr(backbone, "BATCH", size)
        assert np.abs(loaded.embed(video) - together).max() < 1e-5
        assert np.abs(loaded.patches(video) - tokens).max() < 1e-5


def test_views_of_arrays_are_read_as_they_look(loaded: Backbone) -> None:
    video = frames(2)
    expected = loaded.embed(np.ascontiguousarray(video[:, ::-1, :, ::-1]))
    view = video[:, ::-1, :, ::-1]
    view.flags.writeable = False
    assert np.array_equal(loaded.embed(view), expected)


def blocks_of(loaded: Backbone) -> Any:
    return loaded._parts.model.model.layer if loaded.name == "dinov3" else loaded._parts.model.encoder.layer


def test_layer_18_is_the_output_of_block_18_of_24(deep: Backbone) -> None:
    video, side = frames(2), 3
    model, parts = deep._parts.model, deep._parts
    outputs: dict[int, Any] = {}
    handles = [
        block.register_forward_hook(lambda _m, _i, out, number=number: outputs.update({number: out}))
        for number, block in enumerate(blocks_of(deep), start=1)
    ]
    with torch.inference_mode():
        pixels = deep._pixels(video, side * deep.patch, side * deep.patch)
        whole = model(pixel_values=pixels, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    assert sorted(outputs) == list(range(1, 25))
    prefix = 5 if deep.name == "dinov3" else 2
    for layer in (GEOPHYS_LAYER, 1, 24):
        read = deep.patches(video, layer=layer, size=side * deep.patch)
        with torch.inference_mode():
            expected = parts.norm(outputs[layer])[:, prefix:].reshape(2, side, side, -1).numpy()
        assert np.abs(read - expected).max() < 1e-5
    # The protocol's index −7 of 25 hidden states is the same block.
    assert len(whole.hidden_states) == 25
    assert torch.equal(whole.hidden_states[-7], outputs[GEOPHYS_LAYER])
    last = deep.patches(video, size=side * deep.patch)
    assert np.abs(last - whole.last_hidden_state[:, prefix:].reshape(2, side, side, -1).numpy()).max() < 1e-5


def test_the_embedding_is_the_class_token_after_the_norm(loaded: Backbone) -> None:
    video = frames(2)
    with torch.inference_mode():
        pixels = loaded._pixels(video, loaded.image_size, loaded.image_size)
        whole = loaded._parts.model(pixel_values=pixels).last_hidden_state
    assert whole.shape[1] == loaded._parts.prefix + (loaded.image_size // loaded.patch) ** 2
    assert np.abs(loaded.embed(video) - whole[:, 0].numpy()).max() < 1e-5


def test_blocks_after_the_one_that_is_read_are_not_run(dinov3: Backbone) -> None:
    ran: list[int] = []
    handles = [
        block.register_forward_pre_hook(lambda _m, _i, number=number: ran.append(number))
        for number, block in enumerate(blocks_of(dinov3), start=1)
    ]
    hooks = [len(block._forward_hooks) for block in blocks_of(dinov3)]
    dinov3.patches(frames(1), layer=GEOPHYS_LAYER)
    for handle in handles:
        handle.remove()
    assert ran == list(range(1, 19))
    assert [len(block._forward_hooks) for block in blocks_of(dinov3)] == hooks


def test_patches_lie_row_by_row(loaded: Backbone) -> None:
    # A change in the lower right corner moves that patch's token most.
    size = (2 * loaded.patch, 3 * loaded.patch)
    plain = np.full((1, *size, 3), 128, np.uint8)
    marked = plain.copy()
    marked[:, loaded.patch :, 2 * loaded.patch :] = [255, 0, 0]
    found = loaded.patches(marked, layer=1, size=size) - loaded.patches(plain, layer=1, size=size)
    assert found.shape[:3] == (1, 2, 3)
    change = np.linalg.norm(found[0], axis=-1)
    assert np.unravel_index(change.argmax(), change.shape) == (1, 2)


@pytest.mark.parametrize(
    "arguments", [{"layer": 0}, {"layer": 25}, {"layer": -7}, {"size": 20}, {"size": (0, 448)}]
)
def test_impossible_readouts(deep: Backbone, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"blocks 1 to 24|multiple of the patch"):
        deep.patches(frames(1), **arguments)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((0, 8, 8, 3), np.uint8), np.zeros((1, 8, 8, 3), np.float32), np.zeros((8, 8, 3), np.uint8),
        np.zeros((1, 8, 8, 4), np.uint8), np.zeros((1, 0, 8, 3), np.uint8),
    ],
    ids=["none", "float", "rank", "channels", "no-pixels"],
)  # fmt: skip
def test_frames_of_another_kind(loaded: Backbone, wrong: Any) -> None:
    with pytest.raises(ValueError, match="frames"):
        loaded.embed(wrong)


def test_out_of_memory_halves_the_batch(loaded: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    video = frames(6)
    expected = loaded.embed(video)
    sizes: list[int] = []
    real = loaded._pixels

    def limited(batch: Any, height: int, width: int) -> Any:
        sizes.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(batch, height, width)

    monkeypatch.setattr(loaded, "_pixels", limited)
    assert np.abs(loaded.embed(video) - expected).max() < 1e-5
    assert sizes == [6, 3, 3]


def test_weights_are_frozen_float32_and_in_evaluation(loaded: Backbone) -> None:
    model = loaded._parts.model
    assert not any(module.training for module in model.modules())
    assert {(each.dtype, each.requires_grad) for each in model.parameters()} == {(torch.float32, False)}


def test_dinov3_loads_the_checkpoints_tensors(store: Path, dinov3: Backbone) -> None:
    from safetensors.torch import load_file

    held = load_file(store / DINOV3.directory / "model.safetensors")
    assert "layer.17.attention.q_proj.weight" in held  # the published layout, not transformers 5's
    got = dinov3._parts.model.state_dict()
    for key, tensor in held.items():
        assert torch.equal(
            got[key.replace("layer.", "model.layer.") if key.startswith("layer.") else key], tensor
        )
    assert len(got) == len(held)


def test_tips_loads_the_image_encoder_under_the_names_of_its_own_code(store: Path, tips: Backbone) -> None:
    from safetensors.torch import load_file

    held = load_file(store / TIPSV2.directory / "model.safetensors")
    got = tips._parts.model.state_dict()
    width = held["vision_encoder.cls_token"].shape[-1]
    block, own = "vision_encoder.blocks.1.", "encoder.layer.1."
    for position, letter in enumerate("qkv"):
        rows = slice(position * width, (position + 1) * width)
        for kind in ("weight", "bias"):
            assert torch.equal(
                got[f"{own}attention.{letter}_proj.{kind}"], held[f"{block}attn.qkv.{kind}"][rows]
            )
    for theirs, ours in (
        ("attn.proj.weight", "attention.o_proj.weight"), ("ls1.gamma", "layer_scale1.lambda1"),
        ("ls2.gamma", "layer_scale2.lambda1"), ("mlp.fc1.weight", "mlp.fc1.weight"),
        ("mlp.fc2.bias", "mlp.fc2.bias"), ("norm1.weight", "norm1.weight"), ("norm2.bias", "norm2.bias"),
    ):  # fmt: skip
        assert torch.equal(got[own + ours], held[block + theirs])
    for theirs, ours in (
        ("pos_embed", "embeddings.position_embeddings"), ("cls_token", "embeddings.cls_token"),
        ("register_tokens", "embeddings.register_tokens"), ("norm.weight", "layernorm.weight"),
        ("patch_embed.proj.weight", "embeddings.patch_embeddings.projection.weight"),
    ):  # fmt: skip
        assert torch.equal(got[ours], held[f"vision_encoder.{theirs}"])
    assert not any("text" in key for key in got)


def test_tips_large_is_what_its_shapes_say(tmp_path: Path) -> None:
    """The official sizes, on the meta device: 24 blocks of width 1024 at 448 pixels in patches of 14."""
    torchvision_cpu.usable()
    from transformers import Tipsv2VisionConfig, Tipsv2VisionModel

    with torch.device("meta"):
        state = Tipsv2VisionModel(Tipsv2VisionConfig(**LARGE)).state_dict()
        named = tiny_models.tips_names(state)
    assert named["vision_encoder.pos_embed"].shape == (1, 1025, 1024)
    assert named["vision_encoder.register_tokens"].shape == (1, 1, 1024)
    assert named["vision_encoder.blocks.23.attn.qkv.weight"].shape == (3072, 1024)
    assert named["vision_encoder.blocks.23.mlp.fc1.weight"].shape == (4096, 1024)
    assert named["vision_encoder.patch_embed.proj.weight"].shape == (1024, 3, 14, 14)


def test_tips_with_the_configuration_of_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scorer.estimators import tipsv2

    sizes = {**LARGE, **tiny_models.TIPSV2_SIZES}
    monkeypatch.setattr(tipsv2, "LARGE", sizes)
    tiny_models.tipsv2(tmp_path / "own", own_config=True)
    tiny_models.tipsv2(tmp_path / "hub")
    video = frames(2)
    own, hub = (TIPSV2.load(CPU, tmp_path / name).embed(video) for name in ("own", "hub"))
    assert np.array_equal(own, hub)


def spoil(directory: Path, change: Any) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(directory / "model.safetensors")
    change(state)
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state: state.pop("vision_encoder.blocks.0.ls1.gamma"), "missing"),
        (lambda state: state.update({"vision_encoder.extra": torch.zeros(2)}), "unknown"),
        (lambda state: state.update({"vision_encoder.norm.weight": torch.zeros(3)}), r"model\.safetensors"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_tips_loading_is_strict(tmp_path: Path, change: Any, says: str) -> None:
    spoil(tiny_models.tipsv2(tmp_path), change)
    with pytest.raises(UserError, match=says) as caught:
        TIPSV2.load(CPU, tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state: state.pop("layer.3.norm1.weight"), "1 missing"),
        (lambda state: state.update({"head.weight": torch.zeros(2)}), "1 unknown"),
        (lambda state: state.update({"norm.weight": torch.zeros(3)}), r"model\.safetensors"),
    ],
    ids=["missing", "unknown", "shape"],
)
def test_dinov3_loading_is_strict(tmp_path: Path, change: Any, says: str) -> None:
    spoil(tiny_models.dinov3(tmp_path), change)
    with pytest.raises(UserError, match=says):
        DINOV3.load(CPU, tmp_path)


def configured(directory: Path, members: dict[str, Any]) -> None:
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config.get("vision_config", config).update(members)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(("kind", "make"), [(DINOV3, tiny_models.dinov3), (TIPSV2, tiny_models.tipsv2)])
@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"num_hidden_layers": 10**9}, r"config\.json: .*1000000000 blocks"),
        ({"num_register_tokens": 10**10}, "another shape than its configuration says"),
    ],
    ids=["blocks", "shape"],
)
def test_sizes_that_the_weights_do_not_have(
    tmp_path: Path, kind: BackboneModel, make: Any, members: dict[str, Any], says: str
) -> None:
    configured(make(tmp_path), members)
    with pytest.raises(UserError, match=says):
        kind.load(CPU, tmp_path)


@pytest.mark.parametrize(("kind", "make"), [(DINOV3, tiny_models.dinov3), (TIPSV2, tiny_models.tipsv2)])
def test_a_configuration_names_no_other_file_and_no_code(
    tmp_path: Path, kind: BackboneModel, make: Any
) -> None:
    directory = make(tmp_path / "store")
    expected = kind.load(CPU, tmp_path / "store").embed(frames(2))
    other = make(tmp_path / "other", seed=1) / "model.safetensors"
    (directory / "other.safetensors").write_bytes(other.read_bytes())
    (directory / "code.py").write_text("raise SystemExit('code of the checkpoint was run')\n")
    configured(
        directory,
        {
            "transformers_weights": "other.safetensors",
            "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True},
            "auto_map": {"AutoModel": "code.Model", "AutoConfig": "code.Config"},
            "trust_remote_code": True,
            "torch_dtype": "float16",
        },
    )
    np.testing.assert_array_equal(kind.load(CPU, tmp_path / "store").embed(frames(2)), expected)


@pytest.mark.parametrize(
    "config", ["{", "[]", json.dumps({"model_type": "dinov2"}), "\xff", '{"model_type": "dinov3_vit"}']
)
def test_a_foreign_configuration(tmp_path: Path, config: str) -> None:
    (tiny_models.dinov3(tmp_path) / "config.json").write_text(config, encoding="latin-1")
    with pytest.raises(UserError, match=r"config\.json"):
        DINOV3.load(CPU, tmp_path)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
@pytest.mark.parametrize(
    ("kind", "make"), [(DINOV3, tiny_models.dinov3), (TIPSV2, tiny_models.tipsv2)], ids=["d", "t"]
)
def test_a_missing_or_cut_file(tmp_path: Path, kind: BackboneModel, make: Any, file: str) -> None:
    path = make(tmp_path) / file
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=file.replace(".", r"\.")):
        kind.load(CPU, tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=f"download_checkpoints.py {tmp_path} --only {kind.directory}"):
        kind.load(CPU, tmp_path)


def test_nothing_is_asked_of_the_network(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert DINOV3.load(CPU, store).embed(frames(1)).shape == (1, 32)
    assert TIPSV2.load(CPU, store).embed(frames(1)).shape == (1, 16)
