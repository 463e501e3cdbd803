"""What is asked of Apptainer, as words and variables; no engine needed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path, PurePosixPath

import pytest

from contract.errors import UserError
from harness.runtime.backends import sif_cgroup, sif_engine
from harness.runtime.backends.base import Job, Limits, Mount
from harness.runtime.backends.sif import SifBackend
from harness.runtime.backends.sif_engine import EngineError, complaint
from harness.runtime.backends.sif_image import check_image, digest
from harness.runtime.backends.sif_registry import Registry
from harness.runtime.backends.sif_spec import (
    EGL_TARGET,
    EGL_VENDOR,
    NVIDIA_SMI,
    Engine,
    Scratch,
    command_line,
    engine_environment,
    exec_words,
    faults,
    instance_name,
    limit_numbers,
    probe_words,
    start_words,
)

IMAGE, SCRATCH, ENGINE = Path("/images/agent.sif"), Scratch(Path("/s")), Engine("apptainer")
MOUNTS = (
    Mount(Path("/st/home"), PurePosixPath("/root"), writable=True),
    Mount(Path("/st/workspace"), PurePosixPath("/workspace"), writable=True),
    Mount(Path("/st/task"), PurePosixPath("/task")),
    Mount(Path("/cases/c/reference.mp4"), PurePosixPath("/input/reference.mp4")),
    Mount(Path("/run/session/.codex/sessions"), PurePosixPath("/root/.codex/sessions"), writable=True),
)
TMP = [
    "--mount", "type=bind,source=/s/tmp,destination=/tmp",
    "--mount", "type=bind,source=/s/vartmp,destination=/var/tmp",
]  # fmt: skip
EGL = ["--mount", f"type=bind,source={EGL_VENDOR},destination={EGL_TARGET},ro"]
SMI = (
    ["--mount", f"type=bind,source={NVIDIA_SMI},destination={NVIDIA_SMI},ro"] if NVIDIA_SMI.is_file() else []
)


def job(**fields: object) -> Job:
    return Job("4dcb-n", ("codex", "exec", "a b"), image="agent.sif", **fields)  # type: ignore[arg-type]


def test_an_agents_container_in_the_order_of_the_reference() -> None:
    asked = job(mounts=MOUNTS, gpus=("1",), network=False, limits=Limits(2, 4096, 100), env={"A": "x"})
    assert start_words(asked, IMAGE, SCRATCH, ENGINE) == [
        "apptainer", "instance", "start", "--nv", "--net", "--network", "none",
        "--containall", "--cleanenv", "--no-eval", "--home", "/st/home:/root", "--writable-tmpfs",
        "--mount", "type=bind,source=/st/workspace,destination=/workspace",
        "--mount", "type=bind,source=/st/task,destination=/task,ro",
        "--mount", "type=bind,source=/cases/c/reference.mp4,destination=/input/reference.mp4,ro",
        "--mount", "type=bind,source=/run/session/.codex/sessions,destination=/root/.codex/sessions",
        *EGL, *SMI, *TMP,
        "--cpus", "2", "--memory", "4096M", "--memory-swap", "4096M", "--pids-limit", "100",
        "/images/agent.sif", "4dcb-n",
    ]  # fmt: skip
    assert exec_words(asked, ENGINE) == [
        "apptainer", "--silent", "exec", "--cleanenv", "--no-eval", "--pwd", "/", "instance://4dcb-n",
        "/bin/sh", "-c", 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"', "sh", "/workspace",
        "codex", "exec", "a b",
    ]  # fmt: skip


def test_the_shown_command_is_one_exec_with_secrets_hidden() -> None:
    asked = job(
        mounts=MOUNTS[:2], env={"A": "x y"}, secrets={"KEY": "s3cr3t"}, workdir=PurePosixPath("/workspace")
    )
    assert command_line(asked, IMAGE, SCRATCH, ENGINE) == [
        "env", "APPTAINERENV_LANG=C.UTF-8", "APPTAINERENV_CUDA_VISIBLE_DEVICES=", "APPTAINERENV_A=x y",
        "APPTAINERENV_KEY=***",
        "apptainer", "exec", "--containall", "--cleanenv", "--no-eval", "--pid", "--home", "/st/home:/root",
        "--writable-tmpfs", "--mount", "type=bind,source=/st/workspace,destination=/workspace", *TMP,
        "--pwd", "/workspace", "/images/agent.sif", "codex", "exec", "a b",
    ]  # fmt: skip


def test_the_scorers_container_has_a_home_and_temporary_folders_with_room() -> None:
    words = start_words(job(gpus=()), IMAGE, SCRATCH, ENGINE)
    assert words[3:] == [
        "--containall", "--cleanenv", "--no-eval", "--home", "/s/home:/root", "--writable-tmpfs", *TMP,
        "/images/agent.sif", "4dcb-n",
    ]  # fmt: skip
    own = job(mounts=(Mount(Path("/t"), PurePosixPath("/tmp"), writable=True),))
    words = start_words(own, IMAGE, SCRATCH, ENGINE)
    assert [word for word in words if word.endswith("=/tmp")] == ["type=bind,source=/t,destination=/tmp"]


def test_paths_with_commas_quotes_and_colons_survive() -> None:
    mounts = (Mount(Path('/a,b/"c":d'), PurePosixPath("/e f")),)
    assert 'type=bind,"source=/a,b/""c"":d",destination=/e f,ro' in start_words(
        job(mounts=mounts), IMAGE, SCRATCH, ENGINE
    )


def test_variables_are_the_programs_own_and_no_words() -> None:
    asked = job(env={"A": "1", "HOME": "/h"}, secrets={"KEY": "s3cr3t"}, gpus=("0", "GPU-1"))
    outside = {
        "PATH": "/bin", "HOME": "/root", "APPTAINER_CACHEDIR": "/c", "APPTAINER_BIND": "/etc",
        "APPTAINERENV_X": "no", "SINGULARITYENV_X": "no", "APPTAINER_NV": "1", "OPERATORS_KEY": "no",
    }  # fmt: skip
    assert engine_environment(asked, ENGINE, outside) == {
        "PATH": "/bin", "HOME": "/root", "APPTAINER_CACHEDIR": "/c", "APPTAINERENV_LANG": "C.UTF-8",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES": "0,GPU-1", "APPTAINERENV_A": "1", "APPTAINERENV_KEY": "s3cr3t",
    }  # fmt: skip
    words = [*start_words(asked, IMAGE, SCRATCH, ENGINE), *exec_words(asked, ENGINE)]
    assert "s3cr3t" not in " ".join(words)
    # Apptainer does not pass a HOME on.
    assert words[-5:] == ["env", "HOME=/h", "codex", "exec", "a b"]
    singularity = Engine("singularity", "SINGULARITYENV_")
    assert engine_environment(asked, singularity, {})["SINGULARITYENV_A"] == "1"


@pytest.mark.parametrize(("gpus", "nv", "pin"), [((), False, ""), (None, True, None), (("2",), True, "2")])
def test_gpus_are_all_shown_and_pinned_by_a_variable(
    gpus: tuple[str, ...] | None, nv: bool, pin: str | None
) -> None:
    asked = job(gpus=gpus)
    assert ("--nv" in start_words(asked, IMAGE, SCRATCH, ENGINE)) is nv
    assert engine_environment(asked, ENGINE, {}).get("APPTAINERENV_CUDA_VISIBLE_DEVICES") == pin


def test_the_vendor_file_names_nvidias_library() -> None:
    assert json.loads(EGL_VENDOR.read_text())["ICD"] == {"library_path": "libEGL_nvidia.so.0"}


def test_limits_as_words_and_as_what_the_group_must_say() -> None:
    asked = job(limits=Limits(cpus=4096, memory_mb=64, pids=5))
    cpus = float(os.cpu_count() or 1)
    assert limit_numbers(asked) == {"memory": 64 << 20, "cpus": cpus, "pids": 5}
    assert probe_words(asked, IMAGE, ENGINE) == [
        "apptainer", "exec", "--containall", "--cleanenv", "--no-home", "--writable-tmpfs",
        "--cpus", f"{cpus:g}", "--memory", "64M", "--memory-swap", "64M", "--pids-limit", "5",
        "--pwd", "/", "/images/agent.sif", "/bin/sh", "-c", ":",
    ]  # fmt: skip
    assert limit_numbers(job()) == {}


def test_names_are_made_of_what_apptainer_takes() -> None:
    assert instance_name("4dcb-1-claude-gpt-5.6 é/x") == "4dcb-1-claude-gpt-5.6___x"


def test_a_description_needs_no_engine(tmp_path: Path) -> None:
    backend = SifBackend("/no/such/program", resolve=lambda text: tmp_path / text)
    words = backend.describe(dataclasses.replace(job(), scratch=Path("/runs/scratch")))
    assert words[3:5] == ["/no/such/program", "exec"]
    assert str(tmp_path / "agent.sif") in words
    assert "type=bind,source=/runs/scratch/tmp,destination=/tmp" in words


def test_a_home_with_a_colon_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "a:b"
    home.mkdir()
    assert "colon" in faults(job(mounts=(Mount(home, PurePosixPath("/root"), writable=True),)))
    assert faults(job(mounts=(Mount(home, PurePosixPath("/x"), writable=True),))) == ""
    assert "not there" in faults(job(mounts=MOUNTS))


# ---- the image


def sif(path: Path, content: bytes = b"") -> Path:
    path.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + content)
    return path


def test_an_image_is_known_by_its_mark_and_digest(tmp_path: Path) -> None:
    found = check_image(sif(tmp_path / "a.sif"), "apptainer")
    assert found.startswith("sha256:")
    assert len(found) == 7 + 64


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"x" * 100, b"PK\3\4"])
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.sif").write_bytes(content)
    with pytest.raises(UserError, match=r"no \.sif image") as raised:
        check_image(tmp_path / "a.sif", "apptainer")
    assert "docker-daemon" in raised.value.next_step
    with pytest.raises(UserError, match="cannot be read"):
        check_image(tmp_path, "apptainer")
    with pytest.raises(UserError, match="does not exist"):
        check_image(tmp_path / "b.sif", "apptainer")


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    image, store = sif(tmp_path / "a.sif", b"1"), tmp_path / "store"
    first = digest(image, store)
    (note,) = store.iterdir()
    note.write_text(note.read_text().replace(first, "remembered"))
    assert digest(image, store) == "remembered"
    sif(image, b"22")
    assert digest(image, store) not in (first, "remembered")
    note.write_text("{not json")
    assert digest(image, store) == digest(image, tmp_path / "other")
    # A store that cannot be written costs nothing but time.
    (tmp_path / "file").touch()
    assert digest(image, tmp_path / "file") == digest(image, store)


# ---- who started it


def test_owners_are_written_down_and_read_again(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.claim("n", "a/run", "/scratch")
    (record,) = registry.all()
    assert (record.name, record.run, record.scratch, record.dead_owner) == ("n", "a/run", "/scratch", False)
    with pytest.raises(FileExistsError):
        registry.claim("n", "another", "")
    registry.forget("n")
    registry.forget("n")
    assert registry.all() == []
    assert list(registry.root.iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "dead"),
    [
        ({"pid": 1, "boot_id": "another"}, True),
        ({"pid": os.getpid(), "boot_id": "another", "host": "elsewhere"}, False),
        ({}, True),
    ],
)
def test_an_owner_is_dead_only_if_that_can_be_told(
    tmp_path: Path, owner: dict[str, object], dead: bool
) -> None:
    registry = Registry(tmp_path)
    path = registry.claim("n", "", "")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"owner": owner}))
    assert [record.dead_owner for record in registry.all()] == [dead]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"owner": 1}', '{"owner": {}, "run": "r"}'])
def test_a_damaged_record_judges_nothing(tmp_path: Path, content: str) -> None:
    registry = Registry(tmp_path)
    registry.claim("n", "", "").write_text(content)
    assert registry.all() == []


# ---- control groups


def tree(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def test_control_groups_of_version_2(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    tree(proc, {"7/cgroup": "0::/user.slice/x.scope\n"})
    tree(
        root / "user.slice/x.scope",
        {
            "cgroup.procs": "",
            "memory.max": "67108864\n",
            "memory.events": "low 0\noom 3\noom_kill 2\n",
            "pids.max": "50\n",
            "cpu.max": "50000 100000\n",
        },
    )
    groups = sif_cgroup.groups(7, root, proc)
    assert sif_cgroup.oom_kills(groups) == 2
    assert sif_cgroup.unkept(groups, {"memory": 64 << 20, "cpus": 0.5, "pids": 50}) == []
    assert len(sif_cgroup.unkept(groups, {"memory": 32 << 20, "cpus": 0.25, "pids": 49})) == 3
    tree(root / "user.slice/x.scope", {"memory.max": "max\n", "pids.max": "max\n", "cpu.max": "max 100000\n"})
    assert len(sif_cgroup.unkept(groups, {"memory": 64 << 20, "cpus": 0.5, "pids": 50})) == 3
    assert sif_cgroup.groups(8, root, proc) == {}
    assert sif_cgroup.oom_kills({}) is None


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    tree(proc, {"7/cgroup": "4:memory:/a/7\n2:cpu,cpuacct:/a/7\n1:pids:/\n1:name=systemd:/\n"})
    tree(root, {"memory/a/7/memory.limit_in_bytes": "67108864", "pids/pids.max": "max"})
    tree(root, {"memory/a/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"})
    tree(root, {"cpu/a/7/cpu.cfs_quota_us": "50000", "cpu/a/7/cpu.cfs_period_us": "100000"})
    groups = sif_cgroup.groups(7, root, proc)
    assert sif_cgroup.oom_kills(groups) == 1
    assert sif_cgroup.unkept(groups, {"memory": 64 << 20, "cpus": 0.5}) == []
    assert sif_cgroup.unkept(groups, {"pids": 5}) == ["pids 5 was asked for and is no limit"]
    tree(root, {"cpu/a/7/cpu.cfs_quota_us": "-1"})
    assert len(sif_cgroup.unkept(groups, {"cpus": 64})) == 1
    empty = tmp_path / "gone"
    empty.mkdir()
    sif_cgroup.remove({"memory": empty, "cpu": groups["memory"]})
    assert not empty.exists()
    assert groups["memory"].exists()


# ---- the program


def test_its_complaints_without_its_chatter() -> None:
    said = "\x1b[34mINFO:   \x1b[0m converting\nWARNING: old\n\x1b[31mFATAL:  \x1b[0m no cgroups\nERROR: x\n"
    assert complaint(said) == "no cgroups x"


@pytest.mark.parametrize("answer", ["", "{}x", "[]", '{"instances": [{"instance": "n"}]}'])
def test_a_list_that_cannot_be_read_is_an_error(tmp_path: Path, answer: str) -> None:
    program = tmp_path / "apptainer"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    program.chmod(0o755)
    with pytest.raises(EngineError, match="cannot be read"):
        sif_engine.instances(str(program))


def test_which_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho singularity-ce version 4.1.0\n")
    program.chmod(0o755)
    assert sif_engine.find("mine") == Engine(str(program), "SINGULARITYENV_")
    with pytest.raises(UserError, match="'no-such'") as raised:
        sif_engine.find("no-such")
    assert "[sif] executable" in raised.value.next_step
