"""The doctor with real engines: containers of the minimal image, and what is asked for and cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import docker
import pytest
from harness_lab import Lab

from harness.runtime import doctor
from harness.runtime.backends import sif_engine
from harness.runtime.backends.base import LABEL

pytest_plugins = ("docker_engine", "apptainer_engine")


def look(lab: Lab, capsys: pytest.CaptureFixture[str], jobs: bool = False) -> dict[str, dict[str, str]]:
    words = ["--runtime", str(lab.runtime_path), "--json"]
    status = doctor.main([*words, "--jobs", str(lab.jobs_path)] if jobs else words)
    found = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert status == int(any(finding["status"] == "fail" for finding in found.values()))
    assert not list(lab.root.rglob(".4dcb-doctor*"))
    return found


def ours(engine: docker.DockerClient) -> list[str]:
    """Containers of doctors."""
    found = engine.containers.list(all=True, ignore_removed=True, filters={"label": f"{LABEL}.run=doctor"})
    return [container.name for container in found]


@pytest.mark.docker
def test_docker(
    lab: Lab, capsys: pytest.CaptureFixture[str], base_image: str, engine: docker.DockerClient
) -> None:
    images = f'[agent.image]\ndocker = "{base_image}"\n[scorer.image]\ndocker = "no-such-4dcb:dev"\n'
    lab.runtime(images + "[agent.mine]\ncommand = ['no-such-4dcb']", top='backend = "docker"')
    lab.jobs({"agent": "mine"})
    found = look(lab, capsys)
    assert found["engine"]["what"].startswith("Docker ")
    assert "sha256:" in found["image agent"]["what"]
    assert "variant unknown" in found["image agent"]["what"]
    assert found["container agent"] == {
        "name": "container agent", "status": "ok", "fix": "",
        "what": "starts, writes to its mounts only, has a network and the right time",
    }  # fmt: skip
    assert (found["image scorer"]["status"], found["container scorer"]["status"]) == ("fail", "fail")
    assert found["disk engine"]["status"] == "ok"
    assert "no program no-such-4dcb" in look(lab, capsys, jobs=True)["container agent"]["what"]
    gpus = '[agent.environment]\ngpus = "all"\nnetwork_mode = "no-network"\n'
    lab.runtime(images + gpus, top='backend = "docker"')
    found = look(lab, capsys)
    assert "has no network" in found["container agent"]["what"]
    if not Path("/dev/nvidiactl").exists():
        assert found["gpu agent"]["status"] == "fail"
        assert "NVIDIA Container Toolkit" in found["gpu agent"]["fix"]
    assert ours(engine) == []


def test_an_engine_that_does_not_answer(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{lab.root}/none.sock")
    lab.runtime(lab.shell_agent("true"), top='backend = "docker"')
    found = look(lab, capsys)
    failed = [name for name, finding in found.items() if finding["status"] == "fail"]
    assert failed[:5] == ["engine", "image agent", "container agent", "image scorer", "container scorer"]
    assert "docker info" in found["engine"]["fix"]
    assert found["runs_root"]["status"] == "ok"


@pytest.mark.sif
def test_apptainer(lab: Lab, capsys: pytest.CaptureFixture[str], base_sif: Path) -> None:
    images = f'[agent.image]\nsif = "{base_sif}"\n[scorer.image]\nsif = "no-such.sif"\n'
    lab.runtime(images + '[agent.environment]\ngpus = "0"\n', top='backend = "sif"')
    found = look(lab, capsys)
    assert found["engine"]["status"] == "ok"
    assert "sha256:" in found["image agent"]["what"]
    assert found["container agent"]["status"] == "ok"
    assert "has a network" in found["container agent"]["what"]
    assert found["image scorer"]["status"] == "fail"
    if not Path("/dev/nvidiactl").exists():
        assert "nvidia-smi" in found["gpu agent"]["what"]
    program = sif_engine.find("").program
    assert [name for name in sif_engine.instances(program) if "doctor" in name] == []
