"""The pure half of the three scores, against what the public tool returns and naive second versions."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import persist_lab as lab
import pytest
from PIL import Image

from persistbench.metrics import appearance, boxes, judge_image, loading, matching, motion, permanence, series
from persistbench.metrics.tracking import dense_track
from persistbench.metrics.verdict import parse_answer, verdict
from persistbench.projection import project_frames, project_masks, project_points


def named(group: str) -> Callable:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in lab.cases(group)])


def near(found: float | None, wanted: float | None) -> bool:
    """Equal to a relative 1e-12, or both missing."""
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, rel_tol=1e-12)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def booleans(values: list) -> np.ndarray:
    return np.array(values, bool)


@named("eval-size")
def test_evaluation_size(case: dict) -> None:
    width, height = case["inputs"]["orig_wh"]
    size = loading.evaluation_size((height, width), tuple(case["inputs"]["limit_hw"]))
    assert [[height, width], list(size)] == case["outputs"]


@named("load-frames")
def test_frames_at_the_evaluation_size(case: dict, tmp_path: Path) -> None:
    given, wanted = case["inputs"], case["outputs"]
    lab.save_frames(tmp_path, [lab.rgb(t, *given["source_hw"]) for t in range(given["frames"])])
    frames = loading.load_frames(sorted(tmp_path.iterdir()), tuple(given["eval_hw"]))
    assert list(frames.shape) == wanted["shape"]
    assert frames[0, 0].tolist() == wanted["uint8_first_row_frame0"]
    assert [digest(frame) for frame in frames] == wanted["sha256_uint8"]


@named("load-masks")
def test_masks_at_the_evaluation_size(case: dict, tmp_path: Path) -> None:
    Image.fromarray(np.array(case["inputs"]["grey"], np.uint8)).save(tmp_path / "m.png")
    masks = loading.load_masks([tmp_path / "m.png"], tuple(case["inputs"]["eval_hw"]))
    assert masks.astype(int).tolist() == case["outputs"]
    (tmp_path / "m.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="not a readable mask"):
        loading.load_masks([tmp_path / "m.png"], (2, 2))


def test_the_object_is_looked_for_in_the_first_visible_frame() -> None:
    assert loading.start_of(booleans([0, 0, 1, 1])) == 2
    assert loading.start_of(booleans([0, 0])) == 0


@named("mask-box")
def test_boxes(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    height, width = given["hw"]
    box = boxes.mask_box(lab.rect(height, width, given["rect_xyxy_exclusive"]), given["margin"])
    assert list(box) == pytest.approx(wanted["normalised_xyxy"], rel=1e-12)
    assert list(boxes.pixel_box(box, (height, width))) == wanted["pixel_xyxy"]


@named("box-to-pixels")
def test_pixels_of_a_coordinate(case: dict) -> None:
    size = case["inputs"]["size"]
    assert [boxes.to_pixel(x / size, size) for x in case["inputs"]["x"]] == case["outputs"]["pixel"]


@named("place-mask")
def test_the_prompt_of_the_tracker(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    height, width = given["hw"]
    x0, y0, _, y1 = given["rect_xyxy_exclusive"]
    mask = lab.rect(height, width, given["rect_xyxy_exclusive"])
    mask[y0:y1:2, x0] = False
    if wanted["count"] == 0:
        mask[y0, x0] = True  # the whole object of one pixel
    placed = boxes.place_mask(mask, tuple(given["matched_normalised_xyxy"]))
    assert np.argwhere(placed).tolist() == wanted["placed_true_yx"]


@named("crop-inclusive")
def test_the_crop_for_viewing(case: dict) -> None:
    height, width = case["inputs"]["hw"]
    mask = lab.rect(height, width, case["inputs"]["rect_xyxy_exclusive"])
    crop = boxes.appearance_crop(lab.rgb(0, height, width), mask)
    wanted = case["outputs"]
    assert list(crop.shape) == wanted["shape"]
    assert crop[0, 0].tolist() == wanted["top_left"]
    assert crop[-1, -1].tolist() == wanted["bottom_right"]
    assert digest(crop) == wanted["sha256"]


@named("min-side")
def test_a_least_side(case: dict) -> None:
    given = case["inputs"]
    assert list(boxes.enlarged_size(tuple(given["hw"]), given["min_dim"])) == case["outputs"]["hw"]
    assert boxes.enlarged_size((64, 200)) == (64, 200)


@named("dense-features")
def test_features_spread_over_an_image(case: dict) -> None:
    dense = matching.dense_features(lab.feat(3, 4, 2, 0), (50, 64))
    wanted = case["outputs"]
    assert list(dense.shape) == wanted["shape"]
    for row in (0, 25, 49):
        assert dense[row] == pytest.approx(np.array(wanted[f"row{row}"]), abs=1e-5)


@named("crop-features")
def test_features_of_a_crop(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    mask = lab.rect(given["H"], given["W"], given["mask_rect_xyxy_exclusive"])
    crop = matching.crop_features(lab.feat(3, 4, 2, 0), mask, given["margin"])
    assert list(crop.shape) == wanted["shape"]
    assert crop[0, 0] == pytest.approx(wanted["first"], abs=1e-4)
    assert crop[-1, -1] == pytest.approx(wanted["last"], abs=1e-4)
    assert crop[crop.shape[0] // 2, crop.shape[1] // 2] == pytest.approx(wanted["centre"], abs=1e-4)
    # A sum over hundreds of cells: the tolerance is that of one cell.
    sums = crop.sum((0, 1), dtype=np.float64)
    assert sums == pytest.approx(wanted["sum_per_channel"], abs=1e-4 * crop[..., 0].size)


def features(text: str, given: dict) -> np.ndarray:
    seed = int(text.partition("seed=")[2].rstrip(")"))
    if text.startswith("feat(seed"):
        raise AssertionError("shape unknown")
    return lab.feat(*(int(n) for n in text[5:].split(",")[:3]), seed)


def match_inputs(given: dict) -> tuple[np.ndarray, np.ndarray]:
    if "source_hw" not in given:
        return features(given["source"], given), features(given["target"], given)
    channels = given["channels"]

    def seed(text: str) -> int:
        return int(text.partition("seed=")[2].rstrip(")"))

    target = lab.feat(*given["target_hw"], channels, seed(given["target"]))
    if given["source"].startswith("target["):
        return target[7:11, 5:9], target
    return lab.feat(*given["source_hw"], channels, seed(given["source"])), target


@named("match")
def test_matching(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    source, target = match_inputs(given)
    found = matching.match(source, target, given.get("stride", 1))
    assert found.score == pytest.approx(wanted["score"], abs=2e-6)
    assert list(boxes.pixel_box(found.box, target.shape[:2])) == wanted["pixel_xyxy"]
    if "score_map" in wanted:
        assert list(found.box) == pytest.approx(wanted["normalised_xyxy"], rel=1e-12)
        assert matching.distance_map(source, target) == pytest.approx(np.array(wanted["score_map"]), abs=2e-6)


@pytest.mark.parametrize(("source", "target"), [((1, 1), (1, 1)), ((3, 5), (7, 6)), ((4, 2), (4, 9))])
def test_matching_against_sliding_windows(source: tuple, target: tuple) -> None:
    rng = np.random.default_rng(3)
    small, large = rng.normal(size=(*source, 40)), rng.normal(size=(*target, 40))

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    naive = [
        [
            1 - np.mean(np.sum(unit(small) * unit(large)[y : y + source[0], x : x + source[1]], -1))
            for x in range(target[1] - source[1] + 1)
        ]
        for y in range(target[0] - source[0] + 1)
    ]
    assert matching.distance_map(small, large) == pytest.approx(np.array(naive), abs=1e-6)
    with pytest.raises(ValueError, match="does not fit"):
        matching.match(np.zeros((target[0] + 1, 1, 40)), large)


def test_equal_placements_go_to_the_first() -> None:
    assert matching.match(np.ones((2, 3, 4)), np.ones((6, 7, 4))).box == (0, 0, 3 / 7, 2 / 6)
    assert matching.match(np.zeros((2, 3, 4)), np.zeros((6, 7, 4))).score == 1


@named("track-post")
def test_masks_from_a_tracker(case: dict) -> None:
    wanted = case["outputs"]
    height, width = case["inputs"]["hw"]
    empty = lab.rect(height, width, None)
    masks = [lab.rect(height, width, (0, 0, 2, 2)), empty, None, None, lab.rect(height, width, (3, 1, 6, 4))]
    track = dense_track([None if m is None else m[None] for m in masks], 7, 12, (height, width))
    assert track.masks[7:].sum((1, 2)).tolist() == wanted["area"]
    assert sorted(track.valid) == wanted["valid"]
    assert sorted(track.dropped) == wanted["dropped"]
    with pytest.raises(ValueError, match="returned 5 frames"):
        dense_track(masks, 8, 12, (height, width))
    with pytest.raises(ValueError, match="mask of"):
        dense_track(masks, 0, 12, (3, 3))


@named("motion")
def test_motion_continuity(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    reference, predicted = (
        np.array([lab.rect(*given["hw"], box) for box in given[name]]) for name in ("ref_rects", "pred_rects")
    )
    result = motion.motion_continuity(reference, predicted, given["start"])
    assert all(map(near, result.scores, wanted["per_frame"]))
    assert len(result.scores) == len(wanted["per_frame"])
    groups = booleans(given["visible"]), booleans(given["invisible"])
    means = series.scalars(result.scores, *groups, given["start"])
    assert near(means["visible"], wanted["scalars"]["score_visible"])
    assert near(means["invisible"], wanted["scalars"]["score_invisible"])
    assert result.metadata() == wanted["metadata"]


@named("group-mean")
def test_means_of_groups(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    values = [v if e else None for v, e in zip(given["values"], given["eligible"], strict=True)]
    groups = [booleans(given[name]) for name in ("visible", "invisible")]
    means = series.scalars(values, *groups, given["start"])
    assert near(means["visible"], wanted["scalars"]["score_visible_mean"])
    assert near(means["invisible"], wanted["scalars"]["score_invisible_mean"])
    everything = series.group_mean(values, [True] * len(values), given["start"])
    assert near(everything, wanted["scalars"]["score_valid_mean"])


@named("judge-sample")
def test_frames_picked_for_the_judge(case: dict) -> None:
    low, _, high = case["inputs"]["candidates"].partition("..")
    picked = permanence.pick(range(int(low), int(high) + 1), case["inputs"]["n"])
    assert picked == case["outputs"]


def test_picked_frames_rise_and_reach_both_ends() -> None:
    for total, count in itertools.product(range(40), range(1, 20)):
        picked = permanence.pick(range(total), count)
        assert len(picked) == min(total, count)
        assert all(a < b for a, b in itertools.pairwise(picked))
        if count > 1 and total > 0:
            assert (picked[0], picked[-1]) == (0, total - 1)


@named("permanence")
def test_object_permanence(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    frames, start = given["T"], given["start"]

    def masks(box: tuple, missing: list) -> np.ndarray:
        return np.array([lab.rect(24, 32, None if t in missing else box) for t in range(frames)])

    reference = masks((5, 5, 15, 12), given["ref_empty"])
    predicted = masks((6, 6, 16, 13), given["tracker_dropped"])
    asked: list[int] = []

    def ask(batch: list[int]) -> dict[int, bool]:
        asked.extend(batch)
        return {frame: frame not in given["judge_false"] for frame in batch}

    try:
        labels = permanence.judge_labels(predicted, reference, start, ask)
    except permanence.ReferenceMaskEmpty:
        labels = None
    assert sorted(asked) == wanted["queries_sorted"]
    valid = frozenset(range(start, frames)) - set(given["tracker_dropped"])
    result = permanence.object_permanence(frames, start, valid, labels)
    series_wanted = wanted["per_frame"]
    assert result.tracked == series_wanted["tracked_mask_available"]
    assert result.judged == series_wanted["vlm_permanence_visible"]
    assert result.scores == series_wanted["bitwise_and_exist"]
    groups = booleans(given["visible"]), booleans(given["invisible"])
    extras = result.extras(*groups, start)
    assert set(extras) == set(wanted["scalars"])
    for name, value in wanted["scalars"].items():
        assert near(extras[name], value), name
    metadata = {k: v for k, v in wanted["metadata"].items() if k != "vlm_model_name"}
    assert result.metadata() == metadata


def naive_labels(answers: list[bool]) -> list[bool]:
    """The same procedure, the slow way: a label is what the two nearest asked frames agree on."""
    labels = {frame: answers[frame] for frame in {*permanence.pick(range(len(answers))), len(answers) - 1}}
    while len(labels) < len(answers):
        more = set()
        for frame in set(range(len(answers))) - set(labels):
            low, high = max(k for k in labels if k < frame), min(k for k in labels if k > frame)
            if answers[low] != answers[high]:
                more |= set(permanence.pick(range(low + 1, high)))
        if not more:
            break
        labels |= {frame: answers[frame] for frame in more}
    return [
        labels[t] if t in labels else labels[max(k for k in labels if k < t)] for t in range(len(answers))
    ]


def test_labels_against_a_naive_procedure() -> None:
    rng = np.random.default_rng(5)
    for length in (1, 2, 16, 17, 40, 97, 300):
        for _ in range(5):
            answers = (np.cumsum(rng.random(length) < 0.06) % 2 == 0).tolist()
            mask = np.ones((length, 1, 1), bool)
            labels = permanence.judge_labels(mask, mask, 0, lambda batch, a=answers: {t: a[t] for t in batch})
            assert [labels.values[t] for t in range(length)] == naive_labels(answers)


@named("judge-parse")
def test_verdicts(case: dict) -> None:
    for raw, wanted in zip(case["inputs"]["raw"], case["outputs"]["verdicts"], strict=True):
        # What crashes the public tool is an invalid answer here.
        assert verdict(parse_answer(raw), case["inputs"]["frame_tag"]) is wanted.get("ok"), raw


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 100_000,
        "<answer>" + "(" * 9000 + "</answer>",
        "{" * 50_000 + "}" * 50_000,
        "<answer>{1}</answer>",
    ],
)
def test_hostile_answers_are_invalid(raw: str) -> None:
    assert verdict(parse_answer(raw), "F0001") is None


@named("judge-crop")
def test_crops_for_the_judge(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    if "frame" in given:
        frame = (0.5 * lab.rgb(0, 24, 32) / 255).astype(np.float32)
        crop, info = judge_image.object_crop(frame, lab.rect(24, 32, given["rect_xyxy_exclusive"]))
        assert crop[0].tolist() == wanted["row0"]
        assert info["bbox_xyxy"] == wanted["bbox"]
        assert list(crop.shape) == wanted["shape"]
        return
    height, width = given["hw"]
    frame = lab.rgb(0, height, width)
    image, info = judge_image.judge_image(frame, lab.rect(height, width, given["rect_xyxy_exclusive"]), "REF")
    assert list(image.shape) == wanted["shape"]
    assert info == wanted["info"]
    left, top, right, bottom = info["bbox_xyxy"]
    plain = cv2.resize(frame[top:bottom, left:right], (256, 192), interpolation=cv2.INTER_AREA)
    assert np.array_equal(image[60:], plain[60:]), "below the tag nothing is drawn"
    assert not np.array_equal(image[:60], plain[:60])


def test_bytes_of_floats_are_exact_and_tags_contrast() -> None:
    levels = np.arange(256, dtype=np.uint8)
    assert np.array_equal(judge_image.to_bytes(levels.astype(np.float32) / np.float32(255)), levels)
    for level, border in ((0, [255, 0, 0]), (255, [0, 255, 255])):
        image = judge_image.tagged(np.full((192, 256, 3), level, np.uint8), "F0001")
        assert image[8, 30].tolist() == border


def patch_means(image: np.ndarray) -> np.ndarray:
    _, _, height, width = image.shape
    cells = image.reshape(3, height // 14, 14, width // 14, 14).mean((2, 4)).reshape(3, -1).T
    return np.concatenate((cells, np.ones((len(cells), 1))), 1)[None].astype(np.float32)


@named("appearance")
def test_appearance(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    height, width = given["hw"]
    found = [
        appearance.object_feature(
            lab.smooth(t, height, width).astype(np.float32) / 255,
            lab.rect(height, width, given[name]),
            patch_means,
        )
        for t, name in ((0, "ref_rect"), (9, "pred_rect"))
    ]
    assert found[0] == pytest.approx(wanted["ref_feature_unit"], abs=2e-6)
    assert appearance.similarity(*found) == pytest.approx(wanted["similarity"], abs=2e-6)


@pytest.mark.parametrize("size", [(14, 14), (20, 33), (384, 512), (216, 384), (1, 1)])
def test_model_input_and_cells_against_torch(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    frame = rng.random((*size, 3), dtype=np.float32)
    target = appearance.patch_size(size)
    image = torch.from_numpy(frame).permute(2, 0, 1)[None]
    large = torch.nn.functional.interpolate(image, size=target, mode="bilinear", align_corners=False)
    mean, deviation = (
        torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    assert appearance.model_input(frame) == pytest.approx(((large - mean) / deviation).numpy(), abs=2e-5)
    grid = (target[0] // 14, target[1] // 14)
    for share in (0.001, 0.02, 0.5):
        mask = rng.random(size) < share
        mask[0, 0] = True
        averaged = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(mask).float()[None, None], grid)
        assert np.array_equal(appearance.touched_cells(mask, grid), averaged[0, 0].numpy() > 0)
    assert appearance.touched_cells(np.zeros(size, bool), grid).all()


def test_frames_that_appearance_can_compare() -> None:
    reference = np.array([lab.rect(4, 4, box) for box in ((0, 0, 1, 1), (0, 0, 1, 1), None, (0, 0, 1, 1))])
    predicted = np.array([lab.rect(4, 4, box) for box in ((0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1), None)])
    eligible = appearance.eligible_frames(reference, predicted, frozenset({0, 1, 2}), 1)
    assert eligible.tolist() == [False, True, False, False]


def arrays(given: dict, *names: str) -> list[np.ndarray]:
    return [np.array(given[name]) for name in names]


@named("project-points")
def test_points_in_another_camera(case: dict) -> None:
    given = case["inputs"]
    points = np.array(given["pixels_xy"])
    cameras = arrays(given, "K_source", "K_target", "source_c2w", "target_c2w")
    wanted = np.array([[math.nan if v is None else v for v in pixel] for pixel in case["outputs"]])
    assert project_points(points, *cameras) == pytest.approx(wanted, abs=1e-9, nan_ok=True)
    with pytest.raises(ValueError, match="target poses"):
        project_points(points, *cameras[:3], cameras[3][:1])
    with pytest.raises(ValueError, match="intrinsics"):
        project_points(points, np.eye(4), *cameras[1:])


@named("project-mask")
def test_masks_in_another_camera(case: dict) -> None:
    given = case["inputs"]
    mask = lab.rect(*given["hw"], given["mask_rect_xyxy_exclusive"])
    cameras = arrays(given, "K", "K", "source_c2w", "target_c2w")
    seen = project_masks(np.repeat(mask[None], 3, 0), *cameras)
    assert [np.argwhere(m).tolist() for m in seen] == case["outputs"]["true_yx_per_frame"]
    with pytest.raises(ValueError, match="positive"):
        project_masks(mask[None], *cameras[:2], *(c[:1] for c in cameras[2:]), target=(0, 4))


@named("project-rgb")
def test_frames_in_another_camera(case: dict) -> None:
    given, wanted = case["inputs"], case["outputs"]
    frames = np.array([lab.rgb(t, 12, 16) for t in range(3)])
    seen, filled = project_frames(
        frames, *arrays(given, "K", "K", "source_c2w", "target_c2w"), fill=given["fill"]
    )
    assert filled.sum((1, 2)).tolist() == wanted["valid_count"]
    assert seen[1, 6].tolist() == wanted["frame1_row6"]
    assert [digest(frame) for frame in seen] == wanted["sha256"]
