"""An agent's environment variables: which are plain and which are secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from contract.errors import UserError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand_env(
    env: Mapping[str, str], where: str, path: Path, environ: Mapping[str, str] = os.environ
) -> tuple[dict[str, str], dict[str, str]]:
    """Split an agent's variables into plain ones and secrets.

    A value that is ``"${NAME}"`` is taken from the launcher's environment and is secret, and so is the value
    of every variable whose name speaks of keys, tokens, secrets, passwords or credentials.
    """
    plain: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for name, value in env.items():
        reference = _REFERENCE.fullmatch(value)
        if reference:
            if reference[1] not in environ:
                raise UserError(
                    f"[{where}]: {name} refers to ${{{reference[1]}}}, which is not set",
                    where=path,
                    next_step=f"export {reference[1]}=… before starting",
                )
            secrets[name] = environ[reference[1]]
        elif _REFERENCE.search(value):
            raise UserError(
                f"[{where}]: {name} refers to a variable in the middle of a value",
                where=path,
                expected='"${NAME}" and nothing else, so that the whole value is known as a secret',
                next_step="put the whole value into a variable of your environment",
            )
        elif re.search(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", name.upper()):
            secrets[name] = value
        else:
            plain[name] = value
    return plain, secrets
