"""``pip install ./persistbench`` gives the same import as the repository, with every module and no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import persistbench


def test_the_package_installs_on_its_own(repository: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        repository / "persistbench", source, ignore=shutil.ignore_patterns("__pycache__", "build")
    )
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, str(tmp_path / "site"), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    modules = {str(p.relative_to(site)) for p in (site / "persistbench").rglob("*.py")}
    ours = (repository / "persistbench").rglob("*.py")
    assert modules == {str(p.relative_to(repository)) for p in ours if "build" not in p.parts}
    asked = subprocess.run(
        [sys.executable, "-m", "persistbench", "--version"],
        cwd=site,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert asked.stdout == f"persistbench {persistbench.__version__}\n", asked.stderr
