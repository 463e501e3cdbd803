"""The container build files, as text; no engine needed."""

from __future__ import annotations

import os
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
        if "--from" in instruction:
            continue
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
def test_each_stage_stands_on_something_known_and_each_variant_has_its_own(
    image: str, repository: Path
) -> None:
    stages: list[str] = []
    arguments: set[str] = set()
    for words in map(str.split, instructions(repository / "harness" / image / "Dockerfile")):
        if words[0] == "ARG" and not stages:
            arguments.add(words[1].split("=")[0])
        if words[0] == "FROM":
            parent = words[1]
            if parent.endswith("-${VARIANT}"):
                family = parent.removesuffix("${VARIANT}")
                assert {f"{family}cpu", f"{family}cuda"} <= set(stages)
            elif parent.startswith("${"):
                assert parent.strip("${}") in arguments
            else:
                assert parent in stages
            stages.append(words[3] if "AS" in words else "")
        for origin in re.findall(r"--from=(\S+)", " ".join(words)):
            assert origin in stages
    assert len(stages) > 1
    assert stages[-1] == "", "the last stage is the image"


@pytest.mark.parametrize("image", IMAGES)
def test_whatever_is_fetched_has_a_version_and_can_be_compared_with_a_sum(
    image: str, repository: Path
) -> None:
    text = (repository / "harness" / image / "Dockerfile").read_text(encoding="utf-8")
    for instruction in instructions(repository / "harness" / image / "Dockerfile"):
        if "curl -f" in instruction:
            (name,) = set(re.findall(r"\$\{?([A-Z_]+)_SHA256", instruction))
            assert "sha256sum -c -" in instruction
            assert f"ARG {name}_SHA256=\n" in text
            assert re.search(rf"ARG {name}=([0-9.]+)?\n", text)
            assert "--mount=type=secret,id=ca_bundle" in instruction


CACHES = ("TRITON_CACHE_DIR", "TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")


@pytest.mark.parametrize("image", ["agent", "scorer"])
def test_caches_lie_where_anyone_can_write(image: str, repository: Path) -> None:
    (variables,) = (
        text
        for text in instructions(repository / "harness" / image / "Dockerfile")
        if text.startswith("ENV ") and "PATH=/opt/venv" in text
    )
    found = dict(pair.split("=", 1) for pair in variables.split()[1:])
    assert {found[name].rsplit("/", 1)[0] for name in CACHES} == {"/tmp"}


def test_the_scorers_image_keeps_to_the_protocols_pins(repository: Path) -> None:
    """Values of the images' specification that a score could depend on, and the order of the sets."""
    text = (repository / "harness/scorer/Dockerfile").read_text(encoding="utf-8")
    assert "ARG BASE_IMAGE=pytorch/pytorch:2.13.0-cuda13.0-cudnn9-devel\n" in text
    assert "ARG OPENVDB=13.0.0\n" in text
    assert 'TORCH_CUDA_ARCH_LIST="7.5;8.0;8.6;8.9;9.0;10.0;12.0+PTX"' in text
    for variable in ("HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "PYTHONPATH=/opt/4dcb"):
        assert f"    {variable} \\\n" in text
    sets = [
        text.index(f"-r {name}")
        for name in ("requirements-models", "requirements-cuda", "requirements-nodeps")
    ]
    assert sets == sorted(sets)
    assert "FORCE_CUDA=1 pip install --no-build-isolation -r requirements-cuda.txt" in text
    assert text.rstrip().endswith('ENTRYPOINT ["python", "-m", "scorer"]')


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


DOCKER = """
echo "docker $*" >> "$CALLS"
case "$1 $2" in
    "buildx version") exit 0 ;;
    "image inspect") case "$4" in "{{.Id}}") echo "sha256:$ID" ;; *) echo "$LABEL" ;; esac ;;
esac
"""
APPTAINER = """
echo "apptainer $*" >> "$CALLS"
for word; do last="$previous"; previous="$word"; done
echo made > "$last"
exit ${STATUS:-0}
"""


class Builder:
    """``scripts/build_images.sh`` with programs that stand in for Docker and Apptainer."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.script = root, repository / "scripts/build_images.sh"
        (root / "bin").mkdir()
        for name, text in (("docker", DOCKER), ("apptainer", APPTAINER)):
            (root / "bin" / name).write_text(f"#!/bin/bash\n{text}", encoding="ascii")
            (root / "bin" / name).chmod(0o755)

    def build(self, *words: str, **env: str) -> tuple[int, list[str], str]:
        """Exit status, commands, messages."""
        calls = self.root / "calls"
        calls.write_text("", encoding="ascii")
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        clean = {name: value for name, value in os.environ.items() if not name.endswith(("BUNDLE", "_CONF"))}
        done = subprocess.run(
            [str(self.script), *words],
            env=clean | {"PATH": path, "CALLS": str(calls), "ID": "1"} | env,
            capture_output=True, text=True, check=False, cwd="/",
        )  # fmt: skip
        made = [line for line in calls.read_text(encoding="utf-8").splitlines() if " build " in line]
        return done.returncode, made, done.stdout + done.stderr


@pytest.fixture
def builder(tmp_path: Path, repository: Path) -> Builder:
    return Builder(tmp_path, repository)


def test_the_gpu_images_are_built_in_order_each_on_its_base(builder: Builder) -> None:
    status, made, said = builder.build("--tag", "t1", BLENDER_SHA256="ab", OPENVDB_SHA256="cd")
    assert status == 0, said
    assert [re.findall(r"-t (\S+)", line) for line in made] == [
        ["4dcb/sim-base:t1"], ["4dcb/agent:t1"], ["4dcb/scorer:t1"],
    ]  # fmt: skip
    base, agent, scorer = made
    assert "--build-arg BLENDER_SHA256=ab" in base
    assert "BASE_IMAGE" not in base + scorer
    assert "--build-arg BASE_IMAGE=4dcb/sim-base:t1" in agent
    assert "VARIANT=cuda" in agent
    assert "VARIANT=cuda" in scorer
    assert "--build-arg AGENT_CLIS=yes" in agent
    assert "--build-arg MODELS=yes --build-arg OPENVDB_SHA256=cd" in scorer


def test_cpu_images_and_their_options(builder: Builder) -> None:
    words = ("--cpu", "--base", "b:1", "--network", "host", "--only", "scorer", "--models")
    status, made, said = builder.build(*words, CA_BUNDLE="/ca.crt", PIP_CONF="/pip.conf", TORCH_INDEX="none")
    assert status == 0, said
    (line,) = made
    for part in (
        "-t 4dcb/scorer:dev -f harness/scorer/Dockerfile", "VARIANT=cpu", "BASE_IMAGE=b:1", "MODELS=yes",
        "TORCH_INDEX=none", "--network host", "--secret id=ca_bundle,src=/ca.crt",
        "--secret id=pip_conf,src=/pip.conf",
    ):  # fmt: skip
        assert part in line


def test_an_image_of_the_same_inputs_is_not_built_again(builder: Builder) -> None:
    words = ("--cpu", "--base", "b:1", "--only", "agent")
    _, (line,), _ = builder.build(*words)
    (inputs,) = re.findall(r"INPUTS=([0-9a-f]{32})", line)
    status, made, said = builder.build(*words, "--if-changed", LABEL=inputs)
    assert (status, made) == (0, [])
    assert "4dcb/agent:dev is up to date" in said
    for changed in ({"LABEL": inputs, "ID": "2"}, {"LABEL": "0" * 32}):
        _, made, _ = builder.build(*words, "--if-changed", **changed)
        assert len(made) == 1
    _, made, _ = builder.build(*words, "--if-changed", "--clis", LABEL=inputs)
    assert "AGENT_CLIS=yes" in made[0]


def test_image_files_are_made_from_the_images_whole_or_not_at_all(builder: Builder) -> None:
    words = ("--cpu", "--base", "b:1", "--sif-dir", str(builder.root / "sif"))
    status, made, said = builder.build(*words, MKSQUASHFS_ARGS="-comp zstd")
    assert status == 0, said
    assert [line.split()[-1] for line in made[2:]] == [
        "docker-daemon:4dcb/agent:dev", "docker-daemon:4dcb/scorer:dev",
    ]  # fmt: skip
    assert "--mksquashfs-args -comp zstd" in made[2]
    files = {"4dcb-agent-dev.sif", "4dcb-scorer-dev.sif"}
    there = {path.name for path in (builder.root / "sif").iterdir()}
    assert there == files | {f"{name}.from" for name in files}
    status, made, said = builder.build(*words, "--if-changed")
    assert (status, [line for line in made if line.startswith("apptainer")]) == (0, [])
    assert "4dcb-scorer-dev.sif is up to date" in said
    status, made, _ = builder.build(*words, "--if-changed", ID="2", STATUS="7")
    assert status == 1
    assert len([line for line in made if line.startswith("apptainer")]) == 1
    there = {path.name for path in (builder.root / "sif").iterdir()}
    assert there == {*files, "4dcb-scorer-dev.sif.from"}, "half a file stays, or the old one is lost"
