"""``persistbench infer``: files, resume, faults, shards, compared with what the public tool leaves."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import persist_lab as lab
import pytest
from PIL import Image

from persistbench import BaseModel, ModelOutput, __version__
from persistbench.api import output_pixels, shape_policy
from persistbench.cli import main
from persistbench.prediction import complete, fault_of


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registered dataset, models, and a directory to work in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    lab.make_dataset(tmp_path / "bench")
    (tmp_path / "my_model.py").write_text(lab.MODELS)
    assert main(["dataset", "register", "bench"]) == 0
    return tmp_path


def run(*words: str) -> int:
    return main(["infer", "--output", "out", "--device", "cpu", *words])


def status(place: Path, name: str, split: int = 0) -> dict:
    return json.loads((place / "out/null" / name / "split_status.json").read_text())["splits"][str(split)]


def test_files_and_records_are_those_of_the_public_tool(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = lab.cases("infer-files")
    wanted = case["outputs"]
    assert run("--model", "my_model.py:Copy") == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Predictions: {place}/out/null/copy"
    top = place / "out/null/copy"
    tree = {f"{p.relative_to(top)}{'/' if p.is_dir() else ''}" for p in top.rglob("*")}
    assert {name for name in tree if not name.startswith("dynamic")} == set(wanted["tree"])
    manifest = json.loads((top / "run.json").read_text())
    expected = dict(wanted["run_json"])
    assert list(manifest) == list(expected)
    assert manifest.pop("package_version") == __version__
    assert manifest.pop("model") == "my_model.py:Copy"
    source = hashlib.sha256((place / "my_model.py").read_bytes()).hexdigest()
    assert manifest.pop("model_source_sha256") == source
    assert manifest == {k: v for k, v in expected.items() if k in manifest}
    record = json.loads((top / "static__c1/case.json").read_text())
    hashes = record.pop("files")
    assert record == wanted["case_json_without_hashes"]
    assert set(wanted["case_json_files_keys"]) <= set(hashes)
    assert len(hashes) == 20
    assert set(status(place, "copy")) == set(wanted["split_status_keys"])
    assert status(place, "copy")["status"] == "success"
    assert (status(place, "copy")["total"], status(place, "copy")["completed"]) == (2, 2)
    predicted = Image.open(top / "static__c1/prediction/00003.png")
    assert np.array_equal(np.asarray(predicted), lab.smooth(3, 48, 64))
    assert (top / "run.json").stat().st_mode & 0o777 == 0o666 & ~_umask()
    kept = np.load(top / "static__c1/target_camera_params.npy", allow_pickle=True).item()
    assert np.array_equal(kept["cam_poses"], lab.poses(9))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_second_launch_needs_resume_and_keeps_a_finished_shard(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--model", "my_model.py:Copy") == 0
    assert run("--model", "my_model.py:Copy") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"persistbench: {place}/out/null/copy/dynamic__c1 exists; use --resume or --overwrite"
    )
    assert run("--model", "my_model.py:Fixed", "--name", "copy", "--resume") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"Run configuration differs from {place}/out/null/copy/run.json" in error
    assert run("--model", "my_model.py:Nope", "--name", "copy") == 1
    assert "has no class Nope; models in it: Copy, Fixed, Fragile" in capsys.readouterr().err
    assert status(place, "copy")["status"] == "success", "a mistaken launch demotes nothing"
    # Another spelling of the same file is the same run.
    assert run("--model", f"{place}/my_model.py:Copy", "--resume") == 0
    assert (status(place, "copy")["completed"], status(place, "copy")["skipped"]) == (2, 2)


def test_an_incomplete_case_is_made_again(place: Path) -> None:
    assert run("--model", "my_model.py:Copy") == 0
    top = place / "out/null/copy"
    good = top / "static__c1/prediction/00000.png"
    before, stamp = good.read_bytes(), (top / "dynamic__c1/case.json").stat().st_mtime_ns
    good.write_bytes(before + b"x")
    assert run("--model", "my_model.py:Copy", "--resume") == 0
    assert good.read_bytes() == before
    assert (top / "dynamic__c1/case.json").stat().st_mtime_ns == stamp
    assert status(place, "copy")["skipped"] == 1
    assert run("--model", "my_model.py:Copy", "--overwrite") == 0
    assert status(place, "copy")["skipped"] == 0


def test_a_failing_case_stops_no_other(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--model", "my_model.py:Fragile") == 1
    assert "1 case failed, first dynamic__c1: AttributeError: no such thing" in capsys.readouterr().err
    top = place / "out/null/fragile"
    assert complete(top / "static__c1", "static__c1")
    record = status(place, "fragile")
    assert (record["status"], record["failed"], record["completed"]) == ("fail", 1, 1)
    assert record["error_message"] == "AttributeError: no such thing (case dynamic__c1)"
    assert "Traceback" in (top / "logs/split-0.log").read_text()


def test_shards_and_a_fixed_shape(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "my_model.py:Fixed", "--num-splits", "2")
    assert run(*words, "--split-id", "1") == 0
    top = place / "out/null/fixed"
    assert not (top / "dynamic__c1").exists()
    assert run("--model", "my_model.py:Fixed", "--num-splits", "3") == 1
    assert "Existing run uses a different number of splits" in capsys.readouterr().err
    assert run(*words, "--split-id", "0") == 0
    assert sorted(p.name for p in (top / "dynamic__c1/input").iterdir()) == [f"0000{i}.png" for i in range(4)]
    manifest = json.loads((top / "run.json").read_text())
    assert manifest["preprocessing"] == {"eval_length": 4, "eval_reso": [32, 32]}
    assert Image.open(top / "static__c1/prediction/00000.png").size == (32, 32)
    with pytest.raises(SystemExit) as caught:
        run("--model", "my_model.py:Fixed", "--num-splits", "2", "--split-id", "2")
    assert caught.value.code == 2


def test_a_shard_is_worked_on_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    top = place / "out/null/copy"
    top.mkdir(parents=True)
    with (top / ".split-0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("--model", "my_model.py:Copy") == 1
    assert "being worked on by another process" in capsys.readouterr().err


def test_what_makes_a_case_complete(place: Path) -> None:
    (case,) = lab.cases("case-integrity")
    assert run("--model", "my_model.py:Copy") == 0
    made = place / "out/null/copy/static__c1"
    extra = Image.new("RGB", (64, 48))
    breaks = {
        "untouched": lambda c: None,
        "prediction byte appended": lambda c: (c / "prediction/00000.png").open("ab").write(b"x"),
        "extra non-image file": lambda c: (c / "notes.txt").write_text("x"),
        "extra image in prediction": lambda c: extra.save(c / "prediction/99999.png"),
        "camera missing": lambda c: (c / "input_camera_params.npy").unlink(),
        "no case.json": lambda c: (c / "case.json").unlink(),
    }
    for name, wanted in case["outputs"].items():
        copy = shutil.copytree(made, place / "copies" / name)
        breaks.get(name, lambda c: None)(copy)
        uid = "static__other" if name == "other uid" else "static__c1"
        assert complete(copy, uid) is wanted, (name, fault_of(copy, uid))
    for text in ("[]", "{", "null", '{"schema_version": 1, "uid": "static__c1", "num_frames": true}'):
        (made / "case.json").write_text(text)
        assert fault_of(made, "static__c1") is not None


def test_messages_and_exit_codes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c.json").write_text('{"device": "cpu"}')
    faults = {
        ("--model", "my_model.py"): "--model must be package.module:Class",
        ("--model", "my_model.py:NoModel"): "must be a class that derives from persistbench.BaseModel",
        ("--model", "gone.py:Copy"): "Model file not found: gone.py",
        ("--model", "no.such.module:Copy"): "No module named",
        ("--model", "my_model.py:Copy", "--model-config", "c.json"): "must not set device",
        ("--model", "my_model.py:Copy", "--name", "a/b"): "Invalid case/model identifier: 'a/b'",
        ("--model", "my_model.py:Copy", "--path-map", "x"): "--path-map must be OLD_PREFIX=NEW_PREFIX",
        ("--model", "my_model.py:Copy", "--dataset", "/"): "is not the registered dataset",
    }
    for words, wanted in faults.items():
        assert run(*words) == 1, words
        error = capsys.readouterr().err
        assert wanted in error
        assert error.startswith("persistbench: ")
        assert error.count("\n") == 1
        assert not (place / "out").exists(), "nothing was left behind"
    for words in (["infer"], ["infer", "--model", "x:y", "--frobnicate"], []):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"persistbench {__version__}\n"


def test_baselines(place: Path) -> None:
    for name, source in (("Static", 0), ("CopyLastFrame", 8), ("Copy", 4)):
        assert run("--model", f"persistbench.baselines:{name}") == 0
        image = Image.open(place / "out/null" / name.lower() / "static__c1/prediction/00004.png")
        assert np.array_equal(np.asarray(image), lab.smooth(source, 48, 64))


def test_a_model_sees_no_reference_and_is_closed_once(place: Path) -> None:
    (place / "spy.py").write_text(
        "import json, os\nfrom pathlib import Path\nfrom persistbench import BaseModel, ModelOutput\n"
        "class Spy(BaseModel):\n"
        "    provenance = {'weights': 'none'}\n"
        "    def predict(self, sample):\n"
        "        import lazily\n"
        "        here = [str(p) for p in Path('out').rglob('*') if p.is_dir()]\n"
        "        lazily.note('saw', here, sample.input_frames.dtype.str, sorted(sample.target_cameras))\n"
        "        return ModelOutput(sample.input_frames)\n"
        "    def close(self):\n"
        "        import lazily\n"
        "        lazily.note('closed')\n"
    )
    (place / "lazily.py").write_text(
        "import json\ndef note(*words):\n    open('notes', 'a').write(json.dumps(words) + '\\n')\n"
    )
    try:
        assert run("--model", "spy.py:Spy") == 0
    finally:
        sys.modules.pop("lazily", None)
    notes = [json.loads(line) for line in (place / "notes").read_text().splitlines()]
    assert [note[0] for note in notes] == ["saw", "saw", "closed"]
    assert not any("gt" in Path(name).name for note in notes[:2] for name in note[1])
    assert notes[0][2:] == ["<f4", ["cam_intrinsic", "cam_poses"]]
    manifest = json.loads((place / "out/null/spy/run.json").read_text())
    assert manifest["model_provenance"] == {"weights": "none"}


def test_sigterm_closes_the_records(place: Path, repository: Path) -> None:
    (place / "slow.py").write_text(
        "import time\nfrom pathlib import Path\nfrom persistbench import BaseModel\n"
        "class Slow(BaseModel):\n"
        "    def predict(self, sample):\n        Path('started').touch()\n        time.sleep(600)\n"
        "    def close(self):\n        Path('closed').touch()\n"
    )
    words = [sys.executable, "-m", "persistbench", "infer", "--model", "slow.py:Slow", "--output", "out"]
    child = subprocess.Popen(
        words, env={**os.environ, "PYTHONPATH": str(repository)}, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not (place / "started").exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        assert child.wait(120) == 143
    finally:
        child.kill()
        child.wait()
    assert (place / "closed").exists()
    assert status(place, "slow")["status"] == "fail"


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        (np.zeros((1, 2, 2, 3), np.int64), TypeError),
        (np.zeros((1, 2, 2, 3), bool), TypeError),
        (np.zeros((1, 2, 3, 3), np.uint8), ValueError),
        (np.full((1, 2, 2, 3), 1.001), ValueError),
        (np.full((1, 2, 2, 3), -0.001, np.float32), ValueError),
        (np.full((1, 2, 2, 3), np.nan, np.float16), ValueError),
        ([[0]], TypeError),
    ],
)
def test_predictions_that_are_refused(frames: object, fault: type[Exception]) -> None:
    with pytest.raises(fault):
        output_pixels(ModelOutput(frames), (1, 2, 2, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must return a ModelOutput"):
        output_pixels(np.zeros((1, 2, 2, 3)), (1, 2, 2, 3))


def test_half_precision_is_rounded_in_half_precision() -> None:
    """As the public tool does: its pixels were compared for such a ramp and are the same."""
    values = np.linspace(0, 1, 60_000).astype(np.float16).reshape(1, 100, 200, 3)
    pixels = output_pixels(ModelOutput(values), values.shape)
    assert np.array_equal(pixels, np.rint(values * np.float16(255)).astype(np.uint8))
    assert not np.array_equal(pixels, np.rint(values.astype(np.float32) * 255).astype(np.uint8))


@pytest.mark.parametrize("length", [True, 0, -2, 1.5, None, "4"])
def test_lengths_that_are_refused(length: object) -> None:
    with pytest.raises(ValueError, match="num_frames"):
        shape_policy(length, -1)


@pytest.mark.parametrize("size", [True, 0, (1,), (0, 2), (2, True), "ab", None, (1, 2, 3)])
def test_sizes_that_are_refused(size: object) -> None:
    with pytest.raises(ValueError, match="resolution"):
        shape_policy(-1, size)


def test_numpy_integers_state_a_shape() -> None:
    assert shape_policy(np.int64(4), [np.int32(3), 5]).record() == {"eval_length": 4, "eval_reso": [3, 5]}


def test_a_model_must_predict() -> None:
    with pytest.raises(TypeError):
        BaseModel()  # type: ignore[abstract]
