"""What every agent offers: its name, its command line, where it keeps its transcript, which efforts it
knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Context:
    """The values a command line is made of; paths are those that the agent sees.

    task : path of TASK.md. task_text : its filled text. timeout : seconds of wall clock.
    python : the interpreter that has this project's packages.
    tools : where the agent's directory of ``Agent.tools`` is. tools_python : the interpreter for it.
    """

    task: str
    task_text: str
    workspace: str
    video: str
    world: str
    solution: str
    model: str
    effort: str
    timeout: int
    python: str
    tools: str = ""
    tools_python: str = "python3"


Command = Callable[[Context], tuple[str, ...]]


@dataclass(frozen=True)
class Agent:
    """One agent.

    command : argument vector from a context; pure, and no shell in between.
    session_dir : directory below the agent's home that holds its transcript, or None.
    efforts : accepted efforts; empty accepts any.
    task_on_stdin : whether the task text is given on standard input (it is closed otherwise).
    tools : directory of the repository that a container has at ``tools_target``, or None.
    """

    name: str
    command: Command
    session_dir: str | None = None
    efforts: tuple[str, ...] = ()
    task_on_stdin: bool = False
    tools: str | None = None
    tools_target: str = ""
