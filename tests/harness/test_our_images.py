"""Our own images: both stages on both container backends, the same score, and anyone may run them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import docker
import numpy as np
import pytest
from clips import moving_square
from harness_lab import Lab

from world.video import write_video

pytest_plugins = ("docker_engine", "image_files")
pytestmark = [pytest.mark.docker, pytest.mark.slow]

CASE = "real/clip"
NETWORK_OFF = {"docker": "--network none", "sif": "--net --network none"}
scores: dict[str, float] = {}


@pytest.fixture
def clip(lab: Lab) -> Lab:
    """A case with a video that can be decoded and a mask."""
    write_video(lab.cases / CASE / "reference.mp4", moving_square(24, 96, 128), 24)
    mask = np.zeros((24, 96, 128), np.uint8)
    mask[:, 32:44, :] = 1
    (lab.data / CASE / "annotation").mkdir(parents=True)
    np.savez_compressed(lab.data / CASE / "annotation/dynamic_mask.npz", mask=mask)
    return lab


def reconstruct_and_score(lab: Lab, backend: str, agent: object, scorer: object) -> None:
    """Both stages in containers; the scorer without a network."""
    command = ["{python}", "-m", "harness.baseline", "--video", "{video}", "--workspace", "{workspace}"]
    tables = f'[agent.tester]\ncommand = {json.dumps(command)}\n[scorer.image]\n{backend} = "{scorer}"\n'
    images = f'timeout_sec = 300\n[agent.image]\n{backend} = "{agent}"'
    lab.runtime(tables, top=f'backend = "{backend}"', agent=images)
    lab.jobs({"case": CASE})
    done = lab.infer()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab.record(case=CASE)["backend"] == backend
    shown = lab.score("--type", "dynamic_iou", "--dry-run")
    assert NETWORK_OFF[backend] in shown.stdout
    scored = lab.score("--type", "dynamic_iou")
    assert scored.returncode == 0, scored.stdout + scored.stderr
    run = lab.place(case=CASE)
    reward = json.loads((run / "results/reward.json").read_text(encoding="utf-8"))
    assert list(reward) == ["dynamic_iou"]
    assert 0 < reward["dynamic_iou"] < 1
    assert {path.stat().st_uid for path in run.rglob("*")} == {os.getuid()}
    scores[backend] = reward["dynamic_iou"]
    assert len(set(scores.values())) == 1, f"the backends disagree: {scores}"


def test_both_stages_with_docker(clip: Lab, our_images: tuple[str, str]) -> None:
    reconstruct_and_score(clip, "docker", *our_images)


@pytest.mark.sif
def test_both_stages_with_apptainer(clip: Lab, our_image_files: tuple[Path, Path]) -> None:
    reconstruct_and_score(clip, "sif", *our_image_files)


PROOF = """
touch /tmp/before && env -u HOME python /selftest.py "$1" && test ! -w / && test "$(id -u)" = 4242 \
&& find /tmp/xdg-cache -name '*.nbc' -newer /tmp/before 2> /dev/null | head -n 3 && echo end
"""


@pytest.mark.parametrize("role", ["agent", "scorer"])
def test_anyone_can_run_them_without_a_home_on_a_file_system_that_cannot_be_written(
    role: str, our_images: tuple[str, str], engine: docker.DockerClient, repository: Path
) -> None:
    """The images' own proof again; the kernels that came with the image are used, none is compiled."""
    selftest = str(repository / "scripts/image_selftest.py")
    shown = engine.containers.run(
        our_images[role == "scorer"], ["sh", "-c", PROOF, "sh", role], entrypoint="env", user="4242:4242",
        read_only=True, tmpfs={"/tmp": "exec"}, network_mode="none", remove=True, stderr=True,
        volumes={selftest: {"bind": "/selftest.py", "mode": "ro"}},
    ).decode()  # fmt: skip
    if role == "scorer":
        assert "synthetic/proof" in shown
        assert "scorer-vdb" in shown
    assert shown.endswith("end\n")
    assert ".nbc" not in shown, shown


def test_the_images_say_what_they_are(our_images: tuple[str, str], engine: docker.DockerClient) -> None:
    for name in our_images:
        labels = engine.images.get(name).labels
        assert labels["org.4dcodebench.variant"] == "cpu"
        assert len(labels["org.4dcodebench.inputs"]) == 32
        assert labels["org.opencontainers.image.version"][0].isdigit()
        assert labels["org.opencontainers.image.revision"]
