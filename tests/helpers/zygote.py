"""Launchers that start in no time: a process that has everything imported forks one for each request.

A program of its own: each line on standard input is a JSON list of arguments for ``infer.py``, and the pid of
a new launcher is the answer. The launcher is a process like any other, with a session of its own; only the
second or so of imports is saved, which a hundred kills would otherwise spend a hundred times.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    from contract.errors import run_program
    from harness.runtime.infer import main as infer
    from harness.runtime.provenance import circumstances

    circumstances()  # asks git, once for all
    output = Path(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, number in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(descriptor, number)
            run_program(lambda arguments=line: infer(json.loads(arguments)))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
