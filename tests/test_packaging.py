"""What is installed from here: the wheel, the programs in it away from the checkout, extras, citation."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = tuple(name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"])
BUILD_FILES = (
    "README.md",
    "Dockerfile",
    "requirements*.txt",
    "persistbench/pyproject.toml",
    "persistbench/.gitignore",
)
BACKEND = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
DATA = {
    "harness/agent_context/TASK.md", "harness/agent_context/render-settings.md",
    "harness/agent_context/world-format.md", "harness/apptainer/10_nvidia.json",
    "harness/runtime/templates/jobs.example.toml", "harness/runtime/templates/runtime.example.toml",
    "scorer/vdb.cpp",
}  # fmt: skip
PROVIDED = {
    "numpy": "numpy",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "isal": "isal",
    "yaml": "pyyaml",
}
# Built from source against PyTorch, or an agent's own: the images' requirement files install them.
ELSEWHERE = {"cotracker", "moge", "nvdiffrast", "stirrup", "httpx", "triton", "requests", "urllib3", "bpy"}


def run(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        words, cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made as ``python -m build`` makes it: from the source distribution, unpacked elsewhere."""
    top = tmp_path_factory.mktemp("packaging")
    source = top / "source"
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    for name in (*PACKAGES, "tests", "scripts"):
        shutil.copytree(repository / name, source / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source / name)
    made = run(sys.executable, "-c", BACKEND, "build_sdist", str(top), cwd=source)
    assert made.returncode == 0, made.stderr
    archive = top / made.stdout.split()[-1]
    shutil.unpack_archive(archive, top / "unpacked", filter="data")
    (unpacked,) = (top / "unpacked").iterdir()
    made = run(sys.executable, "-c", BACKEND, "build_wheel", str(top), cwd=unpacked)
    assert made.returncode == 0, made.stderr
    return top / made.stdout.split()[-1]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed into a directory of its own."""
    target = tmp_path_factory.mktemp("installed")
    words = (
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    )
    done = run(sys.executable, *words, cwd=target)
    assert done.returncode == 0, done.stderr
    return target


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(repository: Path, wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(repository))
        for package in PACKAGES
        for path in (repository / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not any(map(path.match, BUILD_FILES))
    }
    assert names == expected
    assert names >= DATA
    assert {name.split("/")[0] for name in names} >= {"contract", "world", "checker", "harness", "scorer"}


def test_the_wheel_says_what_it_is(repository: Path, wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(metadata).decode("utf-8")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "\nLicense-Expression: MIT\n" in text
    assert "\nRequires-Python: >=3.11\n" in text
    assert metadata.replace("METADATA", "licenses/LICENSE") in archive.namelist()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", text, re.MULTILINE))
    assert {"score", "models", "data", "prices", "slurm", "test"} <= extras


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("-m", "checker", "--help"), "Check a delivery"),
        (("-m", "checker.preview", "--help"), "--frame"),
        (("-m", "scorer", "--help"), "usage: python -m scorer"),
        (("-m", "scorer.prepare", "--help"), "usage: python -m scorer.prepare"),
        (("-m", "scorer.report", "--help"), "usage: python -m scorer.report"),
        (("-m", "harness.baseline", "--help"), "--video"),
        (("-m", "harness.runtime.infer", "--help"), "--runtime"),
        (("-m", "harness.runtime.score", "--help"), "--runtime"),
    ],
)
def test_installed_programs_start_from_an_empty_directory(
    installed: Path, tmp_path: Path, words: tuple[str, ...], part: str
) -> None:
    done = run(sys.executable, *words, cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert part in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_installed_harness_runs_an_agent_where_it_is_called(installed: Path, tmp_path: Path) -> None:
    """The templates come along, paths start at the working directory, the packages are left alone."""
    where = run(
        sys.executable, "-c", "import contract; print(contract.__file__)", cwd=tmp_path,
        PYTHONPATH=str(installed),
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(installed)
    before = sorted(installed.rglob("*.toml"))
    templates = installed / "harness/runtime/templates"
    shutil.copy(templates / "runtime.example.toml", tmp_path / "runtime.toml")
    jobs = '[[job]]\ncase = "real/clip"\nagent = "baseline"\nmodel = "m"\neffort = "low"\n'
    (tmp_path / "jobs.toml").write_text(jobs, encoding="ascii")
    make = (
        "import numpy as np; from pathlib import Path; from world.video import write_video; "
        "path = Path('cases/real/clip/reference.mp4'); path.parent.mkdir(parents=True); "
        "write_video(path, (np.full((64, 96, 3), 9 * i, np.uint8) for i in range(9)), 24)"
    )
    files = ("--jobs", "jobs.toml", "--runtime", "runtime.toml")
    for words in (("-c", make), ("-m", "harness.runtime.infer", *files)):
        done = run(sys.executable, *words, cwd=tmp_path, PYTHONPATH=str(installed))
        assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "runs/real/clip").glob("baseline-m-low/1/workspace/world/render.mp4"))
    assert sorted(installed.rglob("*.toml")) == before
    assert not (installed / "runs").exists()


def third_party(repository: Path, known: set[str]) -> dict[str, str]:
    """Top-level names that our modules import and neither Python nor we have, with a module that does. A
    module may import one beside it by its bare name, unless the name is ``known`` to be a package.
    """
    ours = {path.stem for path in repository.iterdir()} | {"tests"}
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in sorted((repository / package).rglob("*.py")):
            beside = {sibling.stem for sibling in path.parent.iterdir()} - known
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                for name in (name.split(".")[0] for name in names):
                    if name not in sys.stdlib_module_names | ours | beside:
                        found[name] = str(path.relative_to(repository))
    return found


def test_whatever_is_imported_some_extra_installs(repository: Path) -> None:
    project = PROJECT["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "test"}
    lines = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    requirements = [Requirement(line) for line in lines]
    for requirement in requirements:
        if requirement.name != "fourdcodebench":
            assert {one.operator for one in requirement.specifier} >= {">=", "<"}, requirement
    known = {requirement.name.lower() for requirement in requirements}
    imported = third_party(repository, known)
    assert {"numpy", "torch", "h5py", "docker"} <= set(imported)
    lost = {
        n: w for n, w in imported.items() if PROVIDED.get(n, n).lower() not in known and n not in ELSEWHERE
    }
    assert lost == {}


def test_the_citation_follows_the_format(repository: Path) -> None:
    """The part of the Citation File Format 1.2.0 that we use, by its published schema."""
    citation: dict[str, Any] = yaml.safe_load((repository / "CITATION.cff").read_text(encoding="utf-8"))
    project = PROJECT["project"]
    required = {"cff-version", "message", "title", "authors"}
    optional = {"abstract", "keywords", "license", "type", "version", "references", "date-released"}
    assert required <= set(citation) <= required | optional
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert len(set(citation["keywords"])) == len(citation["keywords"])
    assert all(isinstance(citation[key], str) for key in (*required - {"authors"}, "abstract", "version"))
    for work in (citation, *citation["references"]):
        assert work["title"]
        assert work["authors"]
        for author in work["authors"]:
            assert set(author) <= {"name", "family-names", "given-names", "website"}
            assert "name" in author or {"family-names", "given-names"} <= set(author)
    for reference in citation["references"]:
        assert reference["type"] in ("article", "conference-paper", "data", "generic", "software")
