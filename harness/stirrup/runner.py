"""An agent for any OpenAI-compatible endpoint: ``runner.py TASK WORKSPACE MODEL EFFORT TIMEOUT``.

Endpoint and key: ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``. Limits: ``FDCB_*`` (limits.py). The transcript goes
to ``~/.stirrup/session/``. Exit status: 0 the loop ended (also at its turn limit, or with a full context
window), 124 its time was up, 2 a fault in what was given, 1 anything else.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from limits import Limits

if TYPE_CHECKING:
    from transcript import Transcript

TIMEOUT_EXIT = 124


def say(text: str) -> None:
    """A line for the log."""
    sys.stdout.write(f"[stirrup] {text}\n")
    sys.stdout.flush()


async def work(
    task: str,
    workspace: Path,
    model: str,
    effort: str,
    seconds: float,
    limits: Limits,
    transcript: Transcript,
) -> None:
    """Run the loop to its end. Raises ``TimeoutError``, and whatever the endpoint answers for good."""
    from endpoint import DEFAULT_KEY, DEFAULT_URL, Client, bypass_proxies_for, one_line
    from shell import Workspace
    from stirrup import Agent
    from stirrup.tools import SIMPLE_FINISH_TOOL
    from stirrup.tools.view_image import ViewImageToolProvider

    url = os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
    bypass_proxies_for(url)

    def notice(text: str) -> None:
        say(text)
        transcript.warning("%s", text)

    client = Client(model, effort, limits, notice, url, os.environ.get("OPENAI_API_KEY") or DEFAULT_KEY)
    shell = Workspace(workspace, min(limits.shell_timeout, seconds))
    agent = Agent(
        client=client,
        name="4dcb",
        max_turns=limits.max_turns,
        tools=[shell, ViewImageToolProvider(shell)],
        finish_tool=SIMPLE_FINISH_TOOL,
        context_summarization_cutoff=limits.summarise_at,
        recover_from_context_overflow=True,
        logger=transcript,
    )
    output = Path.home() / ".stirrup" / "output" / transcript.path.stem
    async with asyncio.timeout(seconds):
        # Nothing is kept for a resumption: a run that is stopped starts anew, and the workspace is large.
        async with agent.session(output_dir=output, cache_on_interrupt=False) as session:
            finish, _, _ = await session.run(task)
    reason = "turn_limit" if finish is None else one_line(Exception(getattr(finish, "reason", finish)))
    say(f"finished turns={transcript.turns} finish={reason}")


def main(words: list[str]) -> int:
    """Returns the exit status."""
    if len(words) != 5 or not words[4].isdigit() or int(words[4]) < 1:
        say("usage: runner.py TASK WORKSPACE MODEL EFFORT TIMEOUT (whole seconds)")
        return 2
    task, workspace, model, effort = words[:4]
    try:
        limits = Limits.from_environment()
        text = Path(task).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        say(f"error: {error}")
        return 2
    # What was given is in order: only now the packages, which take seconds.
    from endpoint import is_exhausted, one_line
    from transcript import Transcript

    transcript = Transcript(Path.home() / ".stirrup" / "session", say)
    seconds = limits.inside(float(words[4]))
    try:
        asyncio.run(work(text, Path(workspace), model, effort, seconds, limits, transcript))
    except TimeoutError:
        transcript.error("timeout after %s seconds", f"{seconds:g}")
        say(f"timeout after {seconds:g} seconds, turns={transcript.turns}")
        return TIMEOUT_EXIT
    except Exception as error:
        if is_exhausted(error):
            transcript.error("context_limit: %s", one_line(error))
            say(f"context_limit turns={transcript.turns}: {one_line(error)}")
            return 0
        transcript.error("%s: %s", type(error).__name__, one_line(error))
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
