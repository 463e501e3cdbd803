"""Sampling, shards, names, preprocessing, index, registration: as the public tool has them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import persist_lab as lab
import pytest
from PIL import Image

from persistbench.api import ModelOutput, ShapePolicy, output_pixels
from persistbench.cameras import Cameras, resized_intrinsic
from persistbench.index import parse_path_map, read_index
from persistbench.preprocess import plan_view, resized_masks, sample_indices, write_frames
from persistbench.registration import open_registered, register, registered
from persistbench.store import identifier, identity, shard


def named(group: str) -> object:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in lab.cases(group)])


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@named("uniform-sample")
def test_even_sampling(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    if "ok" in wanted:
        assert sample_indices(given["n"], given["L"]) == wanted["ok"]
    else:
        with pytest.raises(ValueError, match=wanted["message"]):
            sample_indices(given["n"], given["L"])


@named("shard")
def test_shards(case: dict) -> None:
    count, splits = case["inputs"]["N"], case["inputs"]["K"]
    ranges = [shard(count, splits, i) for i in range(splits)]
    assert [[r.start, r.stop] for r in ranges] == case["outputs"]["ranges"]


@named("identifier")
def test_identifiers(case: dict) -> None:
    for value, wanted in zip(case["inputs"]["values"], case["outputs"]["results"], strict=True):
        if "ok" in wanted:
            assert identifier(value) == wanted["ok"]
        else:
            with pytest.raises(ValueError) as caught:
                identifier(value)
            assert wanted["message"] in str(caught.value)


@named("run-identity")
def test_identity_of_a_manifest(case: dict) -> None:
    assert identity(case["inputs"]["manifest"]) == case["outputs"]["id"]


@named("model-output")
def test_float_predictions_are_rounded_half_to_even(case: dict) -> None:
    values = np.zeros((1, 2, 2, 3), np.float64)
    values.reshape(-1)[:6] = case["inputs"]["first_six_values"]
    pixels = output_pixels(ModelOutput(values), values.shape)
    assert pixels.reshape(-1)[:6].tolist() == case["outputs"]["first_six_pixels"]


@named("intrinsics-resize")
def test_intrinsics_of_a_resized_image(case: dict) -> None:
    given = case["inputs"]
    result = resized_intrinsic(np.array(given["K"]), tuple(given["src_wh"]), tuple(given["dst_wh"]))
    assert result == pytest.approx(np.array(case["outputs"]), rel=1e-12)


def policy(given: dict) -> ShapePolicy:
    size = given["resolution_hw"]
    return ShapePolicy(given["num_frames"], size if size == -1 else tuple(size))


@named("preprocess")
def test_preprocessing_of_an_input_view(case: dict, tmp_path: Path) -> None:
    given, wanted = case["inputs"], case["outputs"]
    height, width = given["source_hw"]
    lab.save_frames(tmp_path / "in", [lab.rgb(t, height, width) for t in range(given["source_frames"])])
    plan = plan_view(tmp_path / "in", policy(given))
    files = write_frames(plan, tmp_path / "out")
    pixels = [np.asarray(Image.open(path)) for path in files]
    assert [path.name for path in files] == wanted["names"]
    assert list(pixels[0].shape) == wanted["shape"]
    assert [hashlib.sha256(frame.tobytes()).hexdigest() for frame in pixels] == wanted["frames_sha256"]
    before = Cameras(lab.poses(given["source_frames"]), np.array(given["K"]))
    after = plan.cameras(before, tmp_path)
    assert after.poses[:, :3, 3].tolist() == wanted["cam_poses_translation"]
    assert after.intrinsic == pytest.approx(np.array(wanted["cam_intrinsic"]), rel=1e-12)
    assert str(after.intrinsic.dtype) == wanted["intrinsic_dtype"]
    assert before.intrinsic.tolist() == given["K"], "the dataset's cameras are left alone"


@named("preprocess-gt")
def test_preprocessing_of_the_reference_view(case: dict, tmp_path: Path) -> None:
    given, wanted = case["inputs"], case["outputs"]
    (height, width), count = given["source_hw"], given["source_frames"]
    lab.save_frames(tmp_path / "in", [lab.rgb(t, height, width) for t in range(count)])
    masks = [lab.rect(height, width, (2 + t, 3, 9 + t, 8)).astype(np.uint8) * 255 for t in range(count)]
    lab.save_frames(tmp_path / "masks", masks)
    plan = plan_view(tmp_path / "in", policy(given))
    frames = [np.asarray(Image.open(path)) for path in write_frames(plan, tmp_path / "out")]
    assert [hashlib.sha256(frame.tobytes()).hexdigest() for frame in frames] == wanted["gt_sha256"]
    small = [np.asarray(mask) > 0 for mask in resized_masks(plan, sorted((tmp_path / "masks").iterdir()))]
    assert np.array(small).astype(int).tolist() == wanted["masks_binary"]


def test_an_index_read_as_the_public_tool_reads_it(tmp_path: Path) -> None:
    (case,) = [c for c in lab.cases("dataset-index") if "rows" in c["inputs"]]
    rows = case["inputs"]["rows"]
    lab.write_index(tmp_path / "data.db", rows)
    dataset = read_index(tmp_path)
    assert dataset.uids == case["outputs"]["uids"]
    assert dataset.dataset_id == case["outputs"]["dataset_id"]
    moved = shutil.copytree(tmp_path, tmp_path / "elsewhere" / "set")
    assert read_index(moved).dataset_id == dataset.dataset_id


def test_the_fixture_dataset_has_the_public_identity(tmp_path: Path) -> None:
    (case,) = lab.cases("infer-files")
    lab.write_index(tmp_path / "data.db", [lab.row("static", "c1"), lab.row("dynamic", "c1")])
    assert read_index(tmp_path).dataset_id == case["outputs"]["run_json"]["dataset_id"]


def test_faults_of_an_index(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Benchmark database not found"):
        read_index(tmp_path)
    twice = [lab.row("other", "a"), lab.row("other", "a")]
    lab.write_index(tmp_path / "a" / "data.db", twice)
    with pytest.raises(ValueError, match="Benchmark contains duplicate case IDs"):
        read_index(tmp_path / "a")
    lab.write_index(tmp_path / "b" / "data.db", [{"success": 1, "uid": "x"}])
    with pytest.raises(ValueError, match="lacks the columns obj_id"):
        read_index(tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "data.db").write_bytes(b"no database at all, but long enough to look at" * 9)
    with pytest.raises(ValueError, match="no benchmark index"):
        read_index(tmp_path / "c")
    lab.write_index(tmp_path / "d" / "data.db", [lab.row("static", "a", obj_id="../up")])
    with pytest.raises(ValueError, match="Invalid case/model identifier"):
        read_index(tmp_path / "d")
    for text in ("nothing", "=b", "a="):
        with pytest.raises(ValueError, match="OLD_PREFIX=NEW_PREFIX"):
            parse_path_map(text)


def test_the_longest_path_map_wins_and_the_original_layout_is_read(tmp_path: Path) -> None:
    old = lab.row("x", "a", object_dir=None, output_dir="/gone/deep/out", visibility_dict_path="/gone/v.npy")
    lab.write_index(tmp_path / "database.db", [old])
    lab.write_index(tmp_path / "data.db", [lab.row("static", "other")])
    maps = [("/gone", "/short"), ("/gone/deep", "/long")]
    (case,) = read_index(tmp_path, None, maps).cases
    assert case.folder == Path("/long/out/data/obj_0001")
    assert case.visibility == Path("/short/v.npy")
    # A prefix is whole components.
    assert read_index(tmp_path, None, [("/go", "/x")]).cases[0].visibility == Path("/gone/v.npy")


def test_registration(tmp_path: Path) -> None:
    (case,) = lab.cases("register")
    made = lab.make_dataset(tmp_path / "whole", frames=2)
    breaks = {
        "masks folder missing": lambda c: shutil.rmtree(c / "center/masks"),
        "masks folder empty": lambda c: [p.unlink() for p in (c / "center/masks").iterdir()],
        "one mask only": lambda c: (c / "center/masks/frame_00000.png").unlink(),
        "visibility missing": lambda c: (c / "visibility_dict.npy").unlink(),
    }
    with pytest.raises(ValueError, match="No dataset registered"):
        registered()
    for mutation in case["inputs"]["mutations"]:
        root = shutil.copytree(made, tmp_path / mutation.replace(" ", "_"))
        breaks[mutation](root / "static" / "c1")
        wanted = case["outputs"][mutation]
        if "ok" in wanted:
            assert len(register(root).cases) == wanted["ok"][1]
            assert registered() == root
        else:
            with pytest.raises(ValueError) as caught:
                register(root)
            assert str(caught.value) == wanted["message"].replace("TMP/bench2", str(root))


def test_registration_lost_or_damaged(tmp_path: Path) -> None:
    root = lab.make_dataset(tmp_path / "set", frames=1)
    register(root)
    assert open_registered(root).uids == ["dynamic__c1", "static__c1"]
    with pytest.raises(ValueError, match="is not the registered dataset"):
        open_registered(tmp_path)
    record = tmp_path / "config" / "persistbench" / "dataset.json"
    assert json.loads(record.read_text()) == {"schema_version": 1, "dataset": str(root)}
    shutil.rmtree(root)
    with pytest.raises(ValueError, match="is gone; run"):
        registered()
    for text in ("[]", "{", '{"schema_version": 1, "dataset": "relative"}'):
        record.write_text(text)
        with pytest.raises(ValueError, match="dataset register"):
            registered()
