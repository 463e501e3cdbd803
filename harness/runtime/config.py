"""The runtime file: where things lie, what runs agents and scorers, and within which limits.

Every key is described in ``docs/configuration.md``; the docstrings below are the short form.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from contract.errors import UserError
from harness.runtime.agentconfig import (
    AgentImage,
    AgentSection,
    AgentTable,
    Budget,
    Network,
    Positive,
    Seconds,
)
from harness.runtime.agents import BUILT_IN
from harness.runtime.engines.settings import LauncherSection
from harness.runtime.tomlfile import Table, nearest, parse, read_toml, unknown_key

REPOSITORY = Path(__file__).resolve().parents[2]
"""The folder of our packages: a checkout, or where pip installs to."""
ROOT = REPOSITORY if (REPOSITORY / "pyproject.toml").is_file() else Path.cwd()
"""Relative paths inside configuration files start here: the checkout's root, or the working directory where
the harness was installed as a package.
"""

BACKENDS = ("host", "docker", "sif")
NO_NETWORK = "no-network"


def _path_text(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError("must be the path of a directory or file")
    try:
        Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(f"no home directory is known for {value.split('/')[0]}") from error
    return value


PathText = Annotated[str, AfterValidator(_path_text)]
OWN_PROGRAM = frozenset(name for name, agent in BUILT_IN.items() if agent.tools)
"""Agents whose program is part of this repository: an interpreter can be named for them."""
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


class ScorerImage(Table):
    """``[scorer.image]``: image per container backend."""

    docker: str = "4dcb/scorer:dev"
    sif: str | None = None


class ScorerEnvironment(Table):
    """``[scorer.environment]``: resources of the scorer's container."""

    network_mode: Network | None = None
    cpus: Seconds | None = None
    memory_mb: Positive | None = None
    gpus: Annotated[int, Field(ge=0)] | None = None


class ScorerSection(Table):
    """``[scorer]``: how scoring runs."""

    timeout_sec: Seconds | None = None
    prepare_timeout_sec: Seconds | None = None
    score_timeout_sec: Seconds | None = None
    viz_timeout_sec: Seconds | None = None
    task_timeout_sec: Seconds = 1800.0
    task_prepare_timeout_sec: Seconds = 600.0
    task_timeouts: dict[str, Seconds] = Field(default_factory=dict)
    jobs: Annotated[int, Field(ge=1, le=256)] | None = None
    slots: Annotated[int, Field(ge=1, le=256)] | None = None
    checkpoints: PathText | None = "checkpoints"
    image: ScorerImage = ScorerImage()
    environment: ScorerEnvironment = ScorerEnvironment()


class DockerTable(Table):
    """``[docker]``: the engine."""

    executable: str | None = None
    host: str | None = None


class SifTable(Table):
    """``[sif]``: the program that runs .sif images."""

    executable: str | None = None


class PricesTable(Table):
    """``[prices]``: a table of prices of the user's own."""

    overlay: PathText | None = None


class RuntimeFile(Table):
    """A whole runtime file. Paths are as written; :class:`Runtime` resolves them."""

    backend: str = "host"
    cases_root: PathText = "cases"
    data_root: PathText = "data"
    runs_root: PathText = "runs"
    auth_root: PathText = ".auth"
    agent: AgentSection = AgentSection()
    budget: Budget = Budget()
    prices: PricesTable = PricesTable()
    scorer: ScorerSection = ScorerSection()
    launcher: LauncherSection = LauncherSection()
    docker: DockerTable = DockerTable()
    sif: SifTable = SifTable()

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, value: str) -> str:
        if value not in BACKENDS:
            like = nearest(value, BACKENDS)
            advice = f"; did you mean {like!r}?" if like else ""
            raise ValueError(f"no such backend; expected {' or '.join(map(repr, BACKENDS))}{advice}")
        return value


@dataclass(frozen=True)
class Runtime:
    """A runtime file with its paths resolved."""

    path: Path
    file: RuntimeFile
    root: Path = ROOT

    def resolve(self, text: str) -> Path:
        """A path of the file: absolute as it stands, else below the repository root; ``~`` is the user's
        home.
        """
        # Not resolve(): trees may be reached through links, and messages show paths as people know them.
        return Path(os.path.normpath(self.root / Path(text).expanduser()))

    @property
    def backend(self) -> str:
        return self.file.backend

    @property
    def cases(self) -> Path:
        return self.resolve(self.file.cases_root)

    @property
    def data(self) -> Path:
        return self.resolve(self.file.data_root)

    @property
    def runs(self) -> Path:
        return self.resolve(self.file.runs_root)

    @property
    def auth(self) -> Path:
        return self.resolve(self.file.auth_root)

    @property
    def checkpoints(self) -> Path | None:
        return self.resolve(self.file.scorer.checkpoints) if self.file.scorer.checkpoints else None

    @property
    def price_file(self) -> Path | None:
        return self.resolve(self.file.prices.overlay) if self.file.prices.overlay else None

    def image(self, image: AgentImage | ScorerImage, table: str) -> str:
        """The image for the chosen backend, empty on the host. Raises ``UserError`` when the file names
        none.
        """
        if self.backend == "host":
            return ""
        name = image.docker if self.backend == "docker" else image.sif
        if not name:
            raise UserError(
                f"[{table}.image]: key {self.backend!r} is missing, and backend = {self.backend!r} needs it",
                where=self.path,
            )
        return name


def find_file(argument: str | Path) -> Path:
    """A ``--jobs`` or ``--runtime`` argument: relative to the working directory if there is such a file, else
    to the repository root.
    """
    path = Path(argument)
    with suppress(RuntimeError):  # no home directory of that name: then it is a name like others
        path = path.expanduser()
    if path.is_absolute() or _exists(path):
        return path.absolute()
    return REPOSITORY / path if _exists(REPOSITORY / path) else path.absolute()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def load_runtime(argument: str | Path, root: Path = ROOT) -> Runtime:
    """Read and check a runtime file. Raises ``UserError``."""
    path = find_file(argument)
    data = read_toml(path)
    agent = data.get("agent")
    if isinstance(agent, dict):
        data["agent"] = _gather_agents(agent, path)
    return Runtime(path, parse(RuntimeFile, data, path), root)


def _gather_agents(section: dict[str, Any], path: Path) -> dict[str, Any]:
    """Move the tables of single agents into ``agents`` after checking their names and keys."""
    reserved = set(AgentSection.model_fields) - {"agents"}
    known = {name: value for name, value in section.items() if name in reserved}
    agents: dict[str, AgentTable] = {}
    for name, value in section.items():
        if name in reserved:
            continue
        if not isinstance(value, dict) or name == "agents":
            raise unknown_key(path, ["agent"], name, reserved | set(BUILT_IN))
        agents[name] = _agent_table(name, value, path, reserved)
    return {**known, "agents": agents}


def _agent_table(name: str, value: dict[str, Any], path: Path, reserved: set[str]) -> AgentTable:
    if name not in BUILT_IN and "command" not in value:
        like = nearest(name, reserved | set(BUILT_IN))
        raise UserError(
            f"[agent.{name}]: no such table, and no custom agent either since it has no 'command'",
            where=path,
            expected=f"one of {', '.join(sorted(reserved | set(BUILT_IN)))}, or a table with a command",
            next_step=f"did you mean [agent.{like}]?" if like else "",
        )
    table = parse(AgentTable, value, path, ("agent", name))
    if name in BUILT_IN:
        given = {"command", "session_dir", "efforts", "stdin", "transcript"} & set(value)
        if given:
            raise UserError(
                f"[agent.{name}]: {sorted(given)[0]!r} cannot be set, {name} is built in",
                where=path,
                next_step="define your variant under another name",
            )
        if table.python is not None and name not in OWN_PROGRAM:
            raise UserError(
                f"[agent.{name}]: 'python' cannot be set, {name} has a program of its own", where=path
            )
    elif table.python is not None:
        raise UserError(
            f"[agent.{name}]: 'python' belongs to {' and '.join(sorted(OWN_PROGRAM))} only",
            where=path,
            next_step="name the interpreter in 'command'",
        )
    elif not AGENT_NAME.fullmatch(name):
        raise UserError(
            f"[agent.{name}]: an agent's name needs letters, digits or any of _.+- only", where=path
        )
    if table.credential and not (table.container or "").startswith("/"):
        raise UserError(
            f"[agent.{name}]: 'credential' needs 'container', the absolute path where the agent looks for it",
            where=path,
        )
    return table
