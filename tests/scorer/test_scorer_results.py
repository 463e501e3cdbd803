from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scorer_lab import strict_json

from contract.metrics import METRICS, TYPE_BY_NAME, TYPES, owners
from contract.states import case_state
from scorer import results as module
from scorer.messages import GateRecord, Gates, Measured
from scorer.results import Results, Stamp, causes, merged, merged_detail

OPEN = Gates(GateRecord(), GateRecord(), (4, 48, 64, 24.0))
FACTS = {"reference": None, "checkpoints": "/checkpoints"}
STAMP = Stamp("sha256:1", 1800.0)
NAN = math.nan
TRANSPARENT = "real/internet_01_purple_granular_sand"


def files(results: Results) -> tuple[Any, Any]:
    return strict_json(results.directory / "reward.json"), strict_json(
        results.directory / "reward.detail.json"
    )


def settled(case: str, types: list[str]) -> list[str]:
    return [n for n in types if all(case_state(k, case) is not None for k in TYPE_BY_NAME[n].keys)]


def gated(directory: Path, case: str, gates: Gates, types: list[str]) -> Results:
    """What the gates write for a case when all ``types`` are wanted."""
    results = Results(directory, case)
    results.write_gates(gates, "sha256:g", FACTS)
    results.write_inapplicable(dict.fromkeys(settled(case, types), STAMP))
    return results


def test_worked_example(tmp_path: Path, fixture_worlds: Path) -> None:
    """The published example: made-up readings of a real case, written type by type."""
    example = json.loads((fixture_worlds.parent / "scorer" / "worked_example.json").read_text())
    results = gated(tmp_path, "real/made_up", OPEN, [entry.name for entry in TYPES])
    extras: dict[str, dict[str, Any]] = {
        "uni3d": {"vouched": frozenset({"uni3d_moge_scene"})},
        "flow": {"causes": {"flow_distribution": "reference_empty"}},
    }
    for name in ("dynamic_iou", "interpenetration", "mesh", "uni3d", "flow", "semantic", "geophys", "depth"):
        readings = {key: value for key, value in example["detail"].items() if name in owners(key)}
        if name == "geophys":
            signals = readings["geophys_dinov3_signals"]
            for side in ("gt", "pred"):  # what a video of fewer than eight frames gives
                signals[side] = dict.fromkeys(signals[side], NAN)
        results.write_measured(name, Measured(readings, **extras.get(name, {})), STAMP)
    results.write_error("track2d", "ValueError: ...", STAMP)

    example = json.loads((fixture_worlds.parent / "scorer" / "worked_example.json").read_text())
    reward, detail = files(results)
    assert reward == example["reward"]
    assert detail.pop("scorer")["protocol"] == "4dcb-1"
    assert detail == example["detail"]
    assert (tmp_path / "reward.json").read_text() == json.dumps(reward, indent=2, sort_keys=True) + "\n"


def states(reward: dict[str, Any], state: str) -> set[str]:
    return {key for key, value in reward.items() if value == state}


def test_synthetic_case_with_open_gates_before_any_metric(tmp_path: Path) -> None:
    types = [entry.name for entry in TYPES]
    reward, detail = files(gated(tmp_path, "synthetic/x", OPEN, types))
    assert reward == dict.fromkeys(["depth_error", "flow_distribution", "track2d_dtw"], "not_applicable")
    assert detail["causes"] == {}
    assert detail["status"] == "ok"


def test_real_case_with_a_closed_world_gate(tmp_path: Path) -> None:
    types = [entry.name for entry in TYPES]
    closed = Gates(
        GateRecord(), GateRecord("invalid_world", ("meshes/1.npz: bad", "x: y")), (4, 48, 64, 24.0)
    )
    results = gated(tmp_path, "real/x", closed, types)
    refused = [n for n in types if n not in ("semantic", "geophys", *settled("real/x", types))]
    results.write_refused(dict.fromkeys(refused, STAMP), "invalid_world")
    reward, detail = files(results)
    assert len(states(reward, "error")) == 10
    assert states(reward, "not_applicable") == {
        "scene_3d", "trajectory_dtw", "emd_step", "occupancy_dtw", "uni3d_point_scene"
    }  # fmt: skip
    assert len(reward) == 15
    assert detail["causes"] == dict.fromkeys(states(reward, "error"), "invalid_world")
    assert detail["status"] == "gate_failure"
    assert detail["gate_failure"] == "invalid_world: meshes/1.npz: bad; x: y"


def test_transparent_case_without_a_video(tmp_path: Path) -> None:
    types = [entry.name for entry in TYPES]
    results = gated(tmp_path, TRANSPARENT, Gates(GateRecord("no_video", ("missing",))), types)
    refused = [n for n in types if n not in settled(TRANSPARENT, types)]
    results.write_refused(dict.fromkeys(refused, STAMP), "no_video")
    reward, detail = files(results)
    excluded = {"dynamic_iou", "flow_distribution", "track2d_dtw", "depth_error", "uni3d_moge_scene"}
    assert states(reward, "excluded") == excluded
    assert len(states(reward, "not_applicable")) == 5
    assert len(states(reward, "error")) == 8
    assert len(reward) == len(METRICS) == 18
    assert detail["causes"] == {
        key: "transparent" if key in excluded else "no_video" for key in excluded | states(reward, "error")
    }
    assert detail["world_gate"] is None
    assert detail["dimensions"] is None


def test_transparent_case_with_open_gates_leaves_four_types(tmp_path: Path) -> None:
    types = [entry.name for entry in TYPES]
    reward, _ = files(gated(tmp_path, TRANSPARENT, OPEN, types))
    assert len(states(reward, "excluded")) == 5
    assert len(states(reward, "not_applicable")) == 5
    left = set(types) - set(settled(TRANSPARENT, types))
    assert left == {"geophys", "interpenetration", "mesh", "semantic"}


@pytest.mark.parametrize(
    ("value", "vouched", "expected", "cause"),
    [
        (0.25, None, 0.25, None),
        (0.25, frozenset(), "uncomputable", "submission_empty"),
        (None, None, "uncomputable", "submission_empty"),
        ("error", None, "error", "metric_failure"),
        (NAN, None, "error", "degenerate"),
        (math.inf, None, "error", "degenerate"),
    ],
)
def test_states_of_one_key(
    tmp_path: Path, value: Any, vouched: Any, expected: Any, cause: str | None
) -> None:
    results = gated(tmp_path, "synthetic/x", OPEN, ["dynamics"])
    measured = Measured({"emd_step_score": value}, {}, vouched, {"emd_step": "submission_empty"})
    results.write_measured("dynamics", measured, STAMP)
    reward, detail = files(results)
    assert reward["emd_step"] == expected
    assert detail["causes"].get("emd_step") == cause


def test_an_empty_first_frame_is_told_from_the_failure(tmp_path: Path) -> None:
    results = Results(tmp_path, "synthetic/x")
    results.write_error("scene_3d", "ValueError: frame 0 has no visible geometry", STAMP)
    assert files(results)[1]["causes"] == {"scene_3d": "empty_first_frame"}


def test_a_write_replaces_what_its_type_owned_and_nothing_else(tmp_path: Path) -> None:
    results = gated(tmp_path, "synthetic/x", OPEN, ["mesh", "dynamic_iou"])
    results.write_error("mesh", "ValueError: boom", STAMP)
    results.write_measured("dynamic_iou", Measured({"dynamic_iou": 0.5, "dynamic_band_px": 1}), STAMP)
    assert files(results)[1]["mesh_failure"] == "ValueError: boom"
    again = Results(tmp_path, "synthetic/x")
    again.write_measured("mesh", Measured(dict.fromkeys(TYPE_BY_NAME["mesh"].keys, 1.0)), STAMP)
    reward, detail = files(again)
    assert reward == {"dynamic_iou": 0.5, **dict.fromkeys(TYPE_BY_NAME["mesh"].keys, 1.0)}
    assert "mesh_failure" not in detail
    assert detail["causes"] == {}
    assert detail["dynamic_band_px"] == 1
    assert detail["scorer"]["types"].keys() == {"mesh", "dynamic_iou"}


def test_gate_failure_of_an_earlier_run_goes_when_the_gates_open(tmp_path: Path) -> None:
    gated(tmp_path, "synthetic/x", Gates(GateRecord("no_video", ("missing",))), [])
    results = gated(tmp_path, "synthetic/x", OPEN, [])
    assert "gate_failure" not in files(results)[1]
    long = Gates(GateRecord("undecodable_video", ("x" * 5000,)))
    text = files(gated(tmp_path, "synthetic/x", long, []))[1]["gate_failure"]
    assert text == "undecodable_video: " + "x" * 2000


def test_one_backbone_keeps_the_frames_of_the_other() -> None:
    old = {"semantic_per_frame": {"semantic_dinov3": [1], "semantic_tips": [2]}, "semantic_dinov3": 1}
    new = {"semantic_per_frame": {"semantic_tips": [3]}, "semantic_tips": 3}
    result = merged_detail(old, ("semantic_tips",), new)
    assert result["semantic_per_frame"] == {"semantic_dinov3": [1], "semantic_tips": [3]}
    assert result["semantic_dinov3"] == 1


_KEYS = st.sampled_from(
    [m.key for m in METRICS]
    + [m.detail_key for m in METRICS]
    + ["status", "dimensions", "alignment", "fps", "mesh_x"]
)


@given(
    st.dictionaries(_KEYS, st.integers()),
    st.dictionaries(_KEYS, st.integers()),
    st.sets(st.sampled_from([t.name for t in TYPES])),
)
def test_merging_keeps_foreign_keys_and_takes_all_new_ones(
    old: dict[str, int], new: dict[str, int], types: set[str]
) -> None:
    result = merged(old, types, new)
    for key, value in new.items():
        assert result[key] == value
    for key, value in old.items():
        if key not in new:
            assert (result.get(key) == value) == (not owners(key) & types)
    assert set(result) <= set(old) | set(new)


def test_causes_are_kept_only_for_states_that_have_one() -> None:
    reward = {"a": "error", "b": 1.0, "c": "excluded", "d": "not_applicable", "e": "uncomputable"}
    old = dict.fromkeys("abcdef", "old")
    assert causes(old, {"e": "new"}, reward) == {"a": "old", "c": "old", "e": "new"}


def scored(tmp_path: Path) -> Results:
    results = Results(tmp_path, "synthetic/x")
    results.write_measured("dynamic_iou", Measured({"dynamic_iou": 0.1 + 0.2}), STAMP, seconds=1.0)
    return Results(tmp_path, "synthetic/x")


def test_up_to_date_asks_for_the_same_inputs_scorer_and_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scored(tmp_path).up_to_date("dynamic_iou", STAMP)
    assert scored(tmp_path).up_to_date("dynamic_iou", Stamp("sha256:1", 5.0))
    assert not scored(tmp_path).up_to_date("dynamic_iou", Stamp("sha256:2", 1800.0))
    assert not scored(tmp_path).up_to_date("mesh", STAMP)
    results = scored(tmp_path)
    (tmp_path / "reward.json").write_text('{"dynamic_iou": 0.9}')  # the crash between the two files
    assert not Results(tmp_path, "synthetic/x").up_to_date("dynamic_iou", STAMP)
    (tmp_path / "reward.json").write_text("half a fi")
    assert not Results(tmp_path, "synthetic/x").up_to_date("dynamic_iou", STAMP)
    monkeypatch.setattr(module, "__version__", "99")
    assert not results.up_to_date("dynamic_iou", STAMP)


def test_up_to_date_asks_for_the_arrays(tmp_path: Path) -> None:
    results = Results(tmp_path, "synthetic/x")
    (tmp_path / ".dynamic.npz.staged").write_bytes(b"x")
    measured = Measured({"dynamic_iou": 1.0}, {"dynamic.npz": ".dynamic.npz.staged"})
    results.write_measured("dynamic_iou", measured, STAMP)
    assert results.up_to_date("dynamic_iou", STAMP)
    (tmp_path / "dynamic.npz").unlink()
    assert not results.up_to_date("dynamic_iou", STAMP)


def test_a_time_out_is_up_to_date_until_there_is_more_time(tmp_path: Path) -> None:
    results = Results(tmp_path, "synthetic/x")
    results.write_error("mesh", "timeout after 5s", Stamp("i", 5.0), timed_out=True)
    assert results.up_to_date("mesh", Stamp("i", 5.0))
    assert not results.up_to_date("mesh", Stamp("i", 6.0))


def test_faults_of_the_machine_leave_no_reading(tmp_path: Path) -> None:
    results = scored(tmp_path)
    (tmp_path / "dynamic.npz").write_bytes(b"old")
    results.write_infrastructure("dynamic_iou", "worker exited without a result (SIGKILL)")
    reward, detail = files(results)
    assert reward == {}
    assert detail["infrastructure"] == {"dynamic_iou": "worker exited without a result (SIGKILL)"}
    assert "dynamic_iou" not in detail
    assert not (tmp_path / "dynamic.npz").exists()
    assert not results.up_to_date("dynamic_iou", STAMP)
    results.write_measured("dynamic_iou", Measured({"dynamic_iou": 1.0}), STAMP)
    assert "infrastructure" not in files(results)[1]


def test_faults_of_the_machine_at_the_gates_say_nothing_about_the_world(tmp_path: Path) -> None:
    results = scored(tmp_path)
    results.write_ungated(["dynamic_iou"], "MemoryError: ", FACTS)
    reward, detail = files(results)
    assert reward == {}
    assert detail["status"] == "infrastructure"
    assert detail["video_gate"] is detail["world_gate"] is None
    assert results.gates("sha256:g") is None
    results.write_gates(OPEN, "sha256:g", FACTS)
    assert "infrastructure" not in files(results)[1]
    assert Results(tmp_path, "synthetic/x").gates("sha256:g") == OPEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"scorer": 3, "causes": [], "infrastructure": 1}',
        '{"scorer": {"types": {"mesh": 1}}}',
        '{"video_gate": {"ok": true}, "scorer": {"gates": {"inputs": "g", "version": "0.1.0"}}}',
    ],
)
def test_files_of_others_are_no_obstacle(tmp_path: Path, text: str) -> None:
    (tmp_path / "reward.detail.json").write_text(text)
    results = Results(tmp_path, "synthetic/x")
    assert not results.up_to_date("mesh", STAMP)
    assert results.gates("g") is None
    results.write_error("mesh", "ValueError: x", STAMP)
    assert states(files(results)[0], "error") == set(TYPE_BY_NAME["mesh"].keys)


def test_single_models_of_a_type_are_written_apart(tmp_path: Path) -> None:
    results = gated(tmp_path, "real/x", OPEN, ["semantic"])
    for name, value in (("semantic_dinov3", 0.5), ("semantic_tips", 0.0)):
        rows = {"semantic_per_frame": {name: [value]}, "semantic_frames": 1, "semantic_stride": 1}
        results.write_measured(name, Measured({name: value, **rows}), STAMP)
    reward, detail = files(results)
    assert reward == {"semantic_dinov3": 0.75, "semantic_tips": 0.5}
    assert detail["semantic_per_frame"] == {"semantic_dinov3": [0.5], "semantic_tips": [0.0]}
    assert results.up_to_date("semantic_dinov3", STAMP)
    results.write_infrastructure("semantic_dinov3", "no memory")
    reward, detail = files(results)
    assert reward == {"semantic_tips": 0.5}
    assert detail["semantic_per_frame"] == {"semantic_tips": [0.0]}
    assert detail["infrastructure"] == {"semantic_dinov3": "no memory"}
    assert results.up_to_date("semantic_tips", STAMP)
    results.write_error("semantic_tips", "ValueError: bad", STAMP)
    reward, detail = files(results)
    assert reward == {"semantic_tips": "error"}
    assert not {"semantic_per_frame", "semantic_frames", "semantic_stride"} & set(detail)


def test_clouds_stay_while_their_model_works(tmp_path: Path) -> None:
    results = gated(tmp_path, "synthetic/x", OPEN, ["uni3d"])

    def staged(group: str) -> dict[str, str]:
        (tmp_path / f".{group}").write_bytes(b"")
        return {f"{group}.npz": f".{group}"}

    keep = ("uni3d_clouds.npz",)
    results.write_measured("uni3d_clouds", Measured({}, staged("uni3d_clouds")), STAMP)
    results.write_measured("uni3d", Measured({"uni3d_point_scene": 1.0}, staged("uni3d")), STAMP, keep=keep)
    assert {"uni3d.npz", "uni3d_clouds.npz"} <= {path.name for path in tmp_path.iterdir()}
    assert files(results)[0]["uni3d_point_scene"] == 1.0
    results.write_infrastructure("uni3d", "no memory", keep)
    assert results.up_to_date("uni3d_clouds", STAMP)
    results.write_error("uni3d", "ValueError: bad clouds", STAMP)
    assert not results.up_to_date("uni3d_clouds", STAMP)
    assert not (tmp_path / "uni3d_clouds.npz").exists()


def test_what_is_skipped_is_noted_until_it_is_wanted_again(tmp_path: Path) -> None:
    results = gated(tmp_path, "real/x", OPEN, [])
    results.note_skipped([], {"uni3d": "no weights", "semantic_tips": "no package"})
    results.note_skipped(["semantic_tips", "mesh"], {})
    assert files(results)[1]["skipped"] == {"uni3d": "no weights"}
    written = (tmp_path / "reward.detail.json").stat().st_mtime_ns
    results.note_skipped(["mesh"], {})
    assert (tmp_path / "reward.detail.json").stat().st_mtime_ns == written
    results.note_skipped(["uni3d"], {})
    assert "skipped" not in files(results)[1]
