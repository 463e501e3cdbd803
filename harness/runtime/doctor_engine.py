"""Checks of the doctor: the engine, its images, a container of each, and GPUs inside them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import threading
from functools import partial
from itertools import pairwise
from typing import Any

from contract.errors import UserError, one_line
from harness.runtime.agentconfig import AgentTable
from harness.runtime.backends import sif_engine
from harness.runtime.backends.base import LABEL
from harness.runtime.config import REPOSITORY, Runtime
from harness.runtime.doctor_agents import program_of
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, quick
from harness.runtime.doctor_trial import ROLES, Said, Trial, gpus_of, image_of, network_of, try_out
from harness.runtime.planning import find_agent
from harness.runtime.variables import expand_env

VERIFY = REPOSITORY / "harness" / "base" / "verify_gpu.py"
IN_IMAGE = "/usr/local/bin/verify_gpu.py"
CONTAINER_S, GPU_S = 60.0, 600.0
START_S = 600.0
"""More, for an engine that has to unpack or read a large image first."""
CLOCK_S = 5.0

_TRY = r"""
rw=$1 ro=$2; shift 2
echo "clock=$(date +%s)"
if (echo written > "$rw/written") 2> /dev/null; then echo rw=yes; else echo rw=no; fi
if [ -n "$ro" ] && (echo written > "$ro/written") 2> /dev/null; then echo ro=no; else echo ro=yes; fi
routes=0
count() {
    while read -r line; do
        case "$line" in Iface*|lo*|*lo) ;; *) routes=$((routes + 1)) ;; esac
    done < "$1"
}
count /proc/net/route
[ ! -r /proc/net/ipv6_route ] || count /proc/net/ipv6_route
echo "routes=$routes"
for program; do command -v "$program" > /dev/null || echo "missing=$program"; done
"""
_VERIFY = f"""
p={IN_IMAGE}; [ -f "$p" ] || p=$1; shift; status=0
for name; do python3 "$p" "$name" 2>&1 || {{ status=1; echo "error: $name: it ended with a failure"; }}; done
exit $status
"""
_ON_GPU = {
    "agent": ("driver", "toolkit", "torch", "bpy", "egl", "cycles", "eevee", "caches"),
    "scorer": ("driver", "toolkit", "torch", "caches"),
}
"""What each image must be able to do, by the names of the verify program."""
_TORCH = (
    "import torch; assert torch.cuda.is_available(), 'torch sees no CUDA device'; torch.ones(9).cuda().sum()"
)
_BUILD = "build the image with CUDA: scripts/build_images.sh"
_GPU_FIX = {
    "driver": "install the NVIDIA driver; for Docker also the NVIDIA Container Toolkit",
    "toolkit": _BUILD,
    "torch": f"{_BUILD}; does the driver (nvidia-smi) know CUDA 13?",
    "bpy": _BUILD,
    "egl": "bring the file that it names: without it EEVEE cannot draw",
    "cycles": "does the driver have its OptiX part?",
    "eevee": "mend what egl says first",
    "caches": "give the image a writable /tmp",
}


def checks(patient: Patient) -> list[Check]:
    """Of engine, images and GPUs. On the host the two roles are the same machine."""
    found = [Check("engine", quick(engine, patient), 180.0)]
    contained = patient.runtime.backend != "host"
    for role in ROLES:
        if contained:
            found.append(Check(f"image {role}", quick(image, patient, role), 600.0))
        if contained or role == "agent":
            look = partial(container, patient, role)
            found.append(Check(_container(patient, role), look, CONTAINER_S + START_S))
        found.append(Check(f"gpu {role}", partial(gpu, patient, role), GPU_S + START_S))
    return found


def _container(patient: Patient, role: str) -> str:
    return "process" if patient.runtime.backend == "host" else f"container {role}"


def engine(patient: Patient) -> Finding:
    """It answers; its version. The host isolates nothing, which is a warning."""
    runtime = patient.runtime
    if runtime.backend == "docker":
        return _docker(runtime)
    if runtime.backend == "sif":
        found = sif_engine.find(runtime.file.sif.executable or "")
        version = one_line(sif_engine.ask(found.program, "--version"))
        sif_engine.instances(found.program)
        return Finding("engine", OK, f"{version} ({found.program})")
    text = (
        f"{patient.backend.check('')}: agents run as you, with your files and network; nothing isolates them"
    )
    return Finding("engine", WARN, text, 'backend = "docker" or "sif" for agents that you do not trust')


def _docker(runtime: Runtime) -> Finding:
    from harness.runtime.backends.docker_engine import connect_or_explain

    client = connect_or_explain(runtime.file.docker.host or "")
    try:
        info: dict[str, Any] = client.info()
    finally:
        client.close()
    text = (
        f"Docker {info.get('ServerVersion')}, {info.get('NCPU')} processors, "
        f"{(info.get('MemTotal') or 0) / 2**30:.0f} GiB of memory, containers in {info.get('DockerRootDir')}"
    )
    program = runtime.file.docker.executable or "docker"
    if shutil.which(program) is None:
        text += f"; no program {program!r} here, which only what --dry-run shows would need"
    return Finding("engine", OK, text)


def image(patient: Patient, role: str) -> Finding:
    """It is there; its digest, as runs record it, and its variant."""
    title, runtime = f"image {role}", patient.runtime
    name = image_of(runtime, role)
    digest = patient.backend.check(name)
    variant = variant_of(runtime, name)
    text = f"{name} {digest}, {variant + ' variant' if variant else 'variant unknown (no label)'}"
    if variant == "cpu" and gpus_of(runtime, role) != ():
        key = '[agent.environment] gpus = "none"' if role == "agent" else "[scorer.environment] gpus = 0"
        return Finding(title, WARN, f"{text}: it makes no use of a GPU", f"scripts/build_images.sh, or {key}")
    return Finding(title, OK, text)


def variant_of(runtime: Runtime, name: str) -> str:
    """``cpu``, ``cuda``, or empty where the image has no such label."""
    if runtime.backend == "docker":
        from harness.runtime.backends.docker_engine import connect_or_explain

        client = connect_or_explain(runtime.file.docker.host or "")
        try:
            found = client.api.inspect_image(name)["Config"].get("Labels") or {}
        finally:
            client.close()
    else:
        program = sif_engine.find(runtime.file.sif.executable or "").program
        try:
            answer = json.loads(sif_engine.ask(program, "inspect", "--json", str(runtime.resolve(name))))
            found = answer["data"]["attributes"]["labels"] or {}
        except (sif_engine.EngineError, ValueError, KeyError, TypeError):
            return ""
    return str(found.get(f"{LABEL}.variant", ""))


def container(patient: Patient, role: str, stop: threading.Event) -> Finding:
    """One starts, writes where it may and nowhere else, has a network or none as asked, knows the time, and
    holds the agents' programs.
    """
    title, runtime = _container(patient, role), patient.runtime
    command = (
        "sh",
        "-c",
        _TRY,
        "sh",
        "{rw}",
        "{ro}",
        *(_programs(patient) if role == "agent" else ["python"]),
    )
    said = try_out(patient, Trial(role, command, seconds=CONTAINER_S), stop)
    answer = dict(line.split("=", 1) for line in said.lines if "=" in line)
    if said.exit_code != 0 or "routes" not in answer:
        why = said.fault or " ".join(said.lines[-1:]) or f"it ended with status {said.exit_code}"
        step = "try the command by hand that infer.py --dry-run shows"
        return Finding(title, FAIL, one_line(f"it cannot be run: {why}")[:300], step)
    for fault, step in _container_faults(answer, said, network_of(runtime, role)):
        return Finding(title, FAIL, fault, step)
    if missing := [line.split("=", 1)[1] for line in said.lines if line.startswith("missing=")]:
        step = "build the image with the agents' programs (scripts/build_images.sh), or derive one from it"
        return Finding(title, FAIL, f"the image has no program {', '.join(missing)}", step)
    clock = float(answer["clock"])
    late = max(said.began - CLOCK_S - clock, clock - said.ended - CLOCK_S)
    if late > 0:
        text = f"its clock is wrong by {late + CLOCK_S:.0f} s"
        return Finding(title, WARN, text, "synchronise the clock of the engine's machine (restart its VM)")
    network = "a network" if answer["routes"] != "0" else "no network"
    where = "where it may" if runtime.backend == "host" else "to its mounts only"
    return Finding(title, OK, f"starts, writes {where}, has {network} and the right time")


def _container_faults(answer: dict[str, str], said: Said, network: bool) -> list[tuple[str, str]]:
    """What is wrong with mounts and network, and what to do."""
    found = []
    if answer["rw"] != "yes":
        found.append(("it cannot write to its workspace", "does SELinux or a user mapping forbid it?"))
    elif not said.owners:
        text = "what it writes does not appear on this machine: the engine runs elsewhere"
        found.append((text, "share runs_root with the engine's machine, or use an engine here"))
    elif said.owners != {os.getuid()}:
        found.append((f"what it writes belongs to user {min(said.owners)}", "use a rootless or local engine"))
    if answer["ro"] != "yes":
        found.append(("it can write to a mount that is read-only", "the engine does not keep what is asked"))
    if network and answer["routes"] == "0":
        found.append(("it has no network, and network_mode asks for one", "repair the engine's network"))
    if not network and answer["routes"] != "0":
        text = 'it has a network although network_mode = "no-network"'
        found.append((text, "the engine does not keep what is asked"))
    return found


def _programs(patient: Patient) -> list[str]:
    """Programs of the jobs' agents, and what every task needs."""
    runtime, found = patient.runtime, ["bash"]
    for name in dict.fromkeys(key.agent for key in patient.keys):
        try:
            agent = find_agent(name, runtime, patient.jobs or runtime.path)
            table = runtime.file.agent.agents.get(name, AgentTable())
            env, _ = expand_env(table.env, f"agent.{name}.env", runtime.path)
        except UserError:
            continue  # said by the check of that agent
        if runtime.backend != "host" and "PATH" not in env:
            found.append(program_of(agent, on_host=False))
    return list(dict.fromkeys(found))


def gpu(patient: Patient, role: str, stop: threading.Event) -> Finding:
    """Driver, compiler, PyTorch, EGL and Blender inside the image, as far as its role needs them."""
    title, runtime = f"gpu {role}", patient.runtime
    gpus = gpus_of(runtime, role)
    if gpus == ():
        return Finding(title, OK, "none is asked for, or there is none")
    command: tuple[str, ...]
    if runtime.backend == "host":
        command = _host_command(role)
    elif variant_of(runtime, image_of(runtime, role)) == "cpu":
        return Finding(title, OK, "not looked at: the image is the CPU variant")
    else:
        command = ("sh", "-c", _VERIFY, "sh", "{tool}", *_ON_GPU[role])
    said = try_out(patient, Trial(role, command, gpus=gpus, tool=VERIFY, seconds=GPU_S), stop)
    faults: dict[str, str] = {}
    for before, line in pairwise(["", *said.lines]):
        if row := re.fullmatch(r"error: (\w+): (.*)", line):
            # A program's status alone says little: its last words do.
            faults.setdefault(row[1], f"{row[2]} ({before})" if "ended with" in row[2] and before else row[2])
    if faults:
        text = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
        return Finding(title, FAIL, one_line(text)[:600], _GPU_FIX.get(next(iter(faults)), ""))
    if said.exit_code != 0:
        why = said.fault or " ".join(said.lines[-1:]) or f"status {said.exit_code}"
        return Finding(title, FAIL, one_line(f"it cannot be used: {why}")[:600], _GPU_FIX["driver"])
    held = [name for line in said.lines if line.startswith("=== all held: ") for name in line.split()[3:]]
    return Finding(title, OK, f"verified: {', '.join(held) or 'torch'}")


def _host_command(role: str) -> tuple[str, ...]:
    """What can be asked of this machine, which promises no version: PyTorch and Blender need not be here."""
    if role == "scorer" and importlib.util.find_spec("torch"):
        return (sys.executable, "-c", _TORCH)
    more = ("egl", "cycles") if role == "agent" and shutil.which("blender") else ()
    return (sys.executable, "{tool}", "driver", *more)
