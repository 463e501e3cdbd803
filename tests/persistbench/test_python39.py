"""The inference half under Python 3.9 with the oldest NumPy and Pillow that it promises.

The interpreter is looked for as ``python3.9`` and under pyenv; ``PERSISTBENCH_PYTHON39`` names one that has
NumPy and Pillow. Skipped where there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import persist_lab as lab
import pytest

PROBE = "import sys, numpy, PIL; print(sys.version_info[:2] == (3, 9), numpy.__version__, PIL.__version__)"


def run(python: str, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [python, *words],
        cwd=cwd,
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def python39(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with NumPy and Pillow: the named one, or one with the oldest versions of both."""
    top = tmp_path_factory.mktemp("python39")
    named = os.environ.get("PERSISTBENCH_PYTHON39")
    if named:
        probe = run(named, "-c", PROBE, cwd=top)
        assert probe.stdout.startswith("True"), probe.stderr
        return named
    pyenv = map(str, sorted((Path.home() / ".pyenv" / "versions").glob("3.9.*/bin/python")))
    # A shim of that name may be there without an interpreter behind it.
    candidates = [shutil.which("python3.9"), *pyenv]
    found = next((one for one in candidates if one and run(one, "-V", cwd=top).returncode == 0), None)
    if found is None:
        pytest.skip("no Python 3.9 on this machine (PERSISTBENCH_PYTHON39 names one)")
    made = run(found, "-m", "venv", str(top / "venv"), cwd=top)
    assert made.returncode == 0, made.stderr
    python = str(top / "venv" / "bin" / "python")
    wheels = ("numpy==1.21.6", "Pillow==8.4.0")
    installed = run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--retries",
        "0",
        "--only-binary",
        ":all:",
        *wheels,
        cwd=top,
    )
    if installed.returncode != 0:
        pytest.skip("NumPy 1.21.6 and Pillow 8.4.0 for Python 3.9 are not to be had here")
    return python


@pytest.mark.slow
def test_inference_under_python_39(python39: str, repository: Path, tmp_path: Path) -> None:
    lab.make_dataset(tmp_path / "bench", frames=3)
    (tmp_path / "my_model.py").write_text(lab.MODELS)
    env = {"PYTHONPATH": str(repository), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    words = (
        "-c",
        "import sys, persistbench; print(sorted({'torch', 'cv2', 'scipy', 'yaml'} & set(sys.modules)))",
    )
    assert run(python39, *words, cwd=tmp_path, **env).stdout.strip() == "[]"
    for command, wanted in (
        (("dataset", "register", "bench"), f"Registered dataset: {tmp_path}/bench (2 completed cases)\n"),
        (("dataset", "show"), f"{tmp_path}/bench\n"),
        (("infer", "--model", "my_model.py:Fixed"), f"Predictions: {tmp_path}/outputs/null/fixed\n"),
        (("infer", "--model", "my_model.py:Copy"), f"Predictions: {tmp_path}/outputs/null/copy\n"),
        (("run", "--model", "my_model.py:Copy", "--resume"), f"Predictions: {tmp_path}/outputs/null/copy\n"),
    ):
        done = run(python39, "-m", "persistbench", *command, cwd=tmp_path, **env)
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr
    record = json.loads((tmp_path / "outputs/null/copy/static__c1/case.json").read_text())
    assert (record["num_frames"], len(record["files"])) == (3, 8)
    # Files of NumPy 2 opened under NumPy 1, by an importer of its own.
    assert (
        json.loads((tmp_path / "outputs/null/copy/split_status.json").read_text())["splits"]["0"]["skipped"]
        == 2
    )
