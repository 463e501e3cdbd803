"""The container build files, as text; no engine needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

IMAGES = ("agent", "base", "scorer")


def instructions(path: Path) -> list[str]:
    """Instructions of a build file, continuation lines joined, comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [part for part in re.sub(r"\\\n\s*", " ", "\n".join(lines)).split("\n") if part.strip()]


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_copied_exists_and_is_sent_to_the_engine(image: str, repository: Path) -> None:
    sent = {
        line[1:]
        for line in (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    for instruction in instructions(repository / "harness" / image / "Dockerfile"):
        words = instruction.split()
        sources = words[1:-1] if words[0] == "COPY" else re.findall(r"type=bind,source=([^,]+)", instruction)
        for source in sources:
            assert list(repository.glob(source)), source
            assert source in sent or source.split("/", 1)[0] in sent, f"{source} is ignored"


@pytest.mark.parametrize("image", IMAGES)
def test_everything_from_an_index_has_a_pinned_version(image: str, repository: Path) -> None:
    for path in (repository / "harness" / image).glob("requirements*.txt"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                version = r"==[0-9][^ ;]*(; python_version .*)?"
                commit = r" @ git\+https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9-]+\.git@[0-9a-f]{40}"
                assert re.fullmatch(rf"[A-Za-z0-9._-]+({version}|{commit})", line), line


@pytest.mark.parametrize("image", IMAGES)
def test_no_secret_ends_up_in_a_layer(image: str, repository: Path) -> None:
    text = (repository / "harness" / image / "Dockerfile").read_text(encoding="utf-8")
    assert text.count("ARG BASE_IMAGE=") == 1
    for instruction in instructions(repository / "harness" / image / "Dockerfile"):
        if "pip install" in instruction:
            assert "--mount=type=secret,id=ca_bundle" in instruction
            assert "--mount=type=secret,id=pip_conf" in instruction
        assert not re.search(r"\b(cp|COPY)\b.*(/run/secrets|\.crt|pip\.conf)", instruction)


def test_data_results_and_secrets_are_not_sent(repository: Path) -> None:
    lines = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {"**/.env", "**/.auth", "**/.local", "**/results", "**/__pycache__"} <= set(rules)
    assert not {"!cases", "!data", "!runs", "!checkpoints", "!.git"} & set(rules)


@pytest.mark.parametrize("script", ["build_images.sh", "engines.sh"])
def test_scripts_parse_and_say_what_they_do(script: str, repository: Path) -> None:
    path = repository / "scripts" / script
    subprocess.run(["bash", "-n", str(path)], check=True)
    shown = subprocess.run([str(path), "--help"], capture_output=True, text=True, check=True, cwd="/")
    assert f"scripts/{script}" in shown.stdout
    assert "set -euo" not in shown.stdout
    wrong = subprocess.run([str(path), "--nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2


def test_an_engine_that_is_not_there_can_be_told_from_a_failure(repository: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(repository / "scripts/engines.sh"), "start"],
        env={"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/none.sock", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"unix://{tmp_path}/none.sock" in done.stderr
    assert done.stdout == ""
