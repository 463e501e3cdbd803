"""``environment.yml``, the requirement files, ``scripts/setup_env.sh``: one source of truth for versions."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

FOLDER = Path("harness/scorer")


def requirements(path: Path) -> dict[str, Requirement]:
    """Requirements of a file by name; those whose marker does not hold here are left out."""
    lines = path.read_text(encoding="utf-8").splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {found.name.lower(): found for found in parsed if not found.marker or found.marker.evaluate()}


def entries(text: str, section: str) -> list[str]:
    """Items of a top-level list in the small part of YAML that the environment file uses."""
    block = re.search(rf"^{section}:\n((?:  - .*\n)+)", text, re.MULTILINE)
    assert block, section
    return [line.removeprefix("  - ") for line in block[1].splitlines()]


def test_the_conda_environment_is_what_the_documents_promise(repository: Path) -> None:
    text = (repository / "environment.yml").read_text(encoding="utf-8")
    body = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))
    assert re.match(r"name: 4dcodebench\nchannels:\n", body)
    assert entries(body, "channels") == ["conda-forge", "nodefaults"]
    packages = entries(body, "dependencies")
    assert all(re.fullmatch(r"[a-z0-9-]+(=[0-9.]+)?", package) for package in packages)
    assert {"python=3.12", "cuda-version=13.0", "openvdb=13.0.0", "ffmpeg", "uv"} <= set(packages)
    known = r"(#.*|name: 4dcodebench|channels:|dependencies:|  - .*)"
    assert all(re.fullmatch(known, line) for line in text.splitlines())


def test_the_environment_and_the_image_have_the_same_foundations(repository: Path) -> None:
    conda = (repository / "environment.yml").read_text(encoding="utf-8")
    image = (repository / FOLDER / "Dockerfile").read_text(encoding="utf-8")
    ((torch, cuda),) = re.findall(r"ARG BASE_IMAGE=pytorch/pytorch:([0-9.]+)-cuda([0-9.]+)-cudnn", image)
    (openvdb,) = re.findall(r"^ARG OPENVDB=(.+)$", image, re.MULTILINE)
    assert f"  - openvdb={openvdb}\n" in conda
    assert f"  - cuda-version={cuda}\n" in conda
    assert f"torch=={torch}\n" in (repository / FOLDER / "requirements-torch.txt").read_text(encoding="utf-8")
    setup_script = (repository / "scripts/setup_env.sh").read_text(encoding="utf-8")
    assert f"/whl/cu{cuda.replace('.', '')}" in setup_script
    used = set(re.findall(r"requirements(?:-[a-z]+)?\.txt", image + setup_script))
    assert used == {path.name for path in (repository / FOLDER).glob("requirements*.txt")}


def test_no_package_has_two_versions(repository: Path) -> None:
    seen: dict[str, str] = {}
    for path in sorted((repository / FOLDER).glob("requirements*.txt")):
        for name, requirement in requirements(path).items():
            assert seen.setdefault(name, str(requirement)) == str(requirement)
    assert seen["torch"] == "torch==2.13.0"
    assert seen["torchvision"] == "torchvision==0.28.0"


def test_pins_satisfy_the_ranges_of_the_package(repository: Path) -> None:
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges: dict[str, Requirement] = {}
    for extra in ("score", "models"):
        for line in project["optional-dependencies"][extra]:
            wanted = Requirement(line)
            ranges[wanted.name.lower()] = wanted
    pins: dict[str, Requirement] = {}
    for name in ("requirements.txt", "requirements-models.txt", "requirements-torch.txt"):
        pins |= requirements(repository / FOLDER / name)
    compared = set(ranges) & set(pins)
    assert {"numba", "h5py", "torch", "transformers"} <= compared
    for name in compared:
        version = str(pins[name].specifier).removeprefix("==")
        assert ranges[name].specifier.contains(version), f"{name}: {version} is outside {ranges[name]}"
    assert not {name for name in ranges if name != "fourdcodebench"} - set(pins), "an extra has no pin"


def setup(repository: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("CONDA_PREFIX", "VIRTUAL_ENV")}
    return subprocess.run(
        ["bash", str(repository / "scripts/setup_env.sh"), *words],
        env=clean | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_setup_without_conda_says_what_to_do(repository: Path) -> None:
    done = setup(repository)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "--cpu" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--cuda", 2)])
def test_setup_options(repository: Path, word: str, status: int) -> None:
    done = setup(repository, word)
    assert done.returncode == status
    assert "scripts/setup_env.sh" in done.stdout + done.stderr


FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
"""


def test_the_gpu_environment_installs_every_requirement_file(repository: Path, tmp_path: Path) -> None:
    """With stand-ins for uv and the compiler: which commands, in which order."""
    prefix, calls = tmp_path / "conda", tmp_path / "calls"
    (prefix / "bin").mkdir(parents=True)
    for name in ("uv", "python", "g++"):
        (prefix / "bin" / name).write_text(FAKE, encoding="ascii")
        (prefix / "bin" / name).chmod(0o755)
    path = f"{prefix / 'bin'}:{os.environ['PATH']}"
    done = setup(repository, CONDA_PREFIX=str(prefix), PATH=path, CALLS=str(calls))
    assert done.returncode == 0, done.stderr
    installs = [
        line for line in calls.read_text(encoding="utf-8").splitlines() if line.startswith("uv pip install")
    ]
    files = [re.findall(r"-r \S*/(requirements\S*\.txt)", line) for line in installs]
    assert files == [
        ["requirements-torch.txt"],
        ["requirements.txt", "requirements-models.txt"],
        ["requirements-cuda.txt"],
        ["requirements-nodeps.txt"],
        [],
    ]
    assert "/whl/cu130" in installs[0]
    assert "--no-build-isolation" in installs[2]
    assert all("--no-deps" in line for line in installs[3:])
    assert all(f"--python {prefix}/bin/python" in line for line in installs)
