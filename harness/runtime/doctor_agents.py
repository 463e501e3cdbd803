"""Checks of the doctor: agents, their logins, and the endpoint of the agent ``stirrup``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from functools import partial
from pathlib import Path

from contract.errors import UserError, one_line
from harness.runtime.agentconfig import AgentTable
from harness.runtime.agents import BUILT_IN, Agent, Context
from harness.runtime.config import NO_NETWORK
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, failed, quick
from harness.runtime.doctor_trial import Trial, try_out
from harness.runtime.logins import check_login
from harness.runtime.planning import check_tools, credential_of, find_agent
from harness.runtime.variables import expand_env

STIRRUP = "stirrup"
DEFAULT_URL = "http://127.0.0.1:8000/v1"
"""What the runner takes without OPENAI_BASE_URL."""
_PROBE = """
import ipaddress, json, os, socket, urllib.error, urllib.parse, urllib.request
url = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
key = os.environ.get("OPENAI_API_KEY") or "local"
try:
    host = urllib.parse.urlsplit(url).hostname or ""
    found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    near = all(not ipaddress.ip_address(address).is_global for address in found)
    # As the runner does: a server on this machine or its network is asked without a proxy.
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if near else []))
    asked = urllib.request.Request(url.rstrip("/") + "/models", headers={"Authorization": "Bearer " + key})
    with opener.open(asked, timeout=20) as answer:
        print("status=%d" % answer.status)
        try:
            print("models=" + json.dumps([str(model["id"]) for model in json.load(answer)["data"]]))
        except (ValueError, KeyError, TypeError):
            pass
except urllib.error.HTTPError as error:
    print("status=%d" % error.code)
except Exception as error:
    print("error=" + str(getattr(error, "reason", error)))
""".replace("DEFAULT_URL", repr(DEFAULT_URL))


def checks(patient: Patient) -> list[Check]:
    """Of every agent of the jobs, without jobs of every agent that the runtime file speaks of."""
    found = []
    for name in patient.agents:
        found.append(Check(f"agent {name}", quick(agent, patient, name), 150.0))
        if _table(patient, name).credential:
            found.append(Check(f"login {name}", quick(login, patient, name)))
    if STIRRUP in patient.agents:
        found.append(Check("endpoint stirrup", partial(endpoint, patient), 300.0))
    return found


def _table(patient: Patient, name: str) -> AgentTable:
    return patient.runtime.file.agent.agents.get(name, AgentTable())


def agent(patient: Patient, name: str) -> Finding:
    """It is defined, knows its efforts, has its variables, and its program is here (on the host)."""
    runtime, table, title = patient.runtime, _table(patient, name), f"agent {name}"
    where = patient.jobs or runtime.path
    known = find_agent(name, runtime, where)
    for key in patient.keys:
        if key.agent == name and known.efforts and key.effort not in known.efforts:
            text, step = f"{where}: effort {key.effort!r} is not known to {name}", " ".join(known.efforts)
            return Finding(title, FAIL, text, f"one of {step}")
    python = check_tools(known, table, runtime) if known.tools else "python3"
    plain, secrets = expand_env(table.env, f"agent.{name}.env", runtime.path)
    program = program_of(known, on_host=runtime.backend == "host", tools_python=python)
    if runtime.backend == "host" and _which(program, plain) is None:
        text = f"program {program!r} was not found on this machine"
        return Finding(title, FAIL, text, 'install it, put it on PATH, or use backend = "docker"')
    if name in BUILT_IN and name != STIRRUP and not (table.credential or secrets):
        text = f"neither a login nor a key is configured for {name}: its provider will refuse it"
        return Finding(
            title, WARN, text, f"set credential and container in [agent.{name}], see docs/agents.md"
        )
    variables = ", ".join(sorted({*plain, *secrets}))
    return Finding(title, OK, f"runs {program}" + (f" with {variables}" if variables else ""))


def program_of(known: Agent, *, on_host: bool, tools_python: str = "python3") -> str:
    """The first word of the agent's command."""
    names = ("task", "task_text", "workspace", "video", "world", "solution", "model", "effort")
    python = sys.executable if on_host else "python3"
    context = Context(**dict.fromkeys(names, ""), timeout=1, python=python, tools_python=tools_python)
    return known.command(context)[0]


def _which(program: str, env: dict[str, str]) -> str | None:
    """Where the host backend finds a program."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return shutil.which(program, path=env.get("PATH", path))


def login(patient: Patient, name: str) -> Finding:
    """The login file is there, private, and lasts as long as a run."""
    runtime, title = patient.runtime, f"login {name}"
    credential = credential_of(name, _table(patient, name), runtime)
    assert credential is not None
    warnings = check_login(credential.source, name, runtime.file.agent.timeout_sec)
    if warnings:
        text, _, step = warnings[0].partition("; mend it: ")
        return Finding(title, WARN, text, step or "log in with the agent's CLI again just before the launch")
    return Finding(title, OK, f"{credential.source} is there, private, and lasts as long as a run")


def endpoint(patient: Patient, stop: threading.Event) -> Finding:
    """The server of the agent ``stirrup`` answers from where the agent will ask it."""
    title, runtime = "endpoint stirrup", patient.runtime
    env, secrets = expand_env(_table(patient, STIRRUP).env, "agent.stirrup.env", runtime.path)
    url = "OPENAI_BASE_URL" if "OPENAI_BASE_URL" in secrets else env.get("OPENAI_BASE_URL", DEFAULT_URL)
    if runtime.file.agent.environment.network_mode == NO_NETWORK:
        text = f"{url} cannot be reached with network_mode = {NO_NETWORK!r}"
        return Finding(title, FAIL, text, 'set [agent.environment] network_mode = "default"')
    python = sys.executable if runtime.backend == "host" else "python3"
    try:
        said = try_out(patient, Trial("agent", (python, "-c", _PROBE), env=env, secrets=secrets), stop)
    except UserError as error:
        return failed(title, error)
    answer = dict(line.split("=", 1) for line in said.lines if "=" in line)
    if "status" not in answer:
        why = answer.get("error") or said.fault or " ".join(said.lines[-1:]) or "no answer"
        return Finding(
            title, FAIL, one_line(f"{url} does not answer: {why}")[:300], _way_to(url, runtime.backend)
        )
    status = int(answer["status"])
    if status in (401, 403):
        step = "set OPENAI_API_KEY in [agent.stirrup.env]"
        return Finding(title, FAIL, f"{url} refuses the key (status {status})", step)
    if status >= 500:
        return Finding(
            title, WARN, f"{url} answers with status {status}: it may still load its model", "wait"
        )
    wanted = {key.model for key in patient.keys if key.agent == STIRRUP}
    offered = json.loads(answer.get("models", "[]"))
    if offered and (absent := sorted(wanted - set(offered))):
        text = f"{url} does not offer {absent[0]!r}; it offers {', '.join(offered[:5])}"
        return Finding(title, WARN, one_line(text)[:300], "correct the model in the jobs file")
    return Finding(title, OK, f"{url} answers (status {status})")


def _way_to(url: str, backend: str) -> str:
    if backend == "docker" and any(name in url for name in ("127.0.0.1", "localhost", "[::1]")):
        return (
            "inside a container 127.0.0.1 is the container itself: name this machine by an address that it "
            'can reach (docker network inspect bridge shows "Gateway"), and let the server listen there'
        )
    return "start the server, or correct OPENAI_BASE_URL in [agent.stirrup.env]"
