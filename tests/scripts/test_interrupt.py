"""Ctrl-C while a program is still importing: one line, status 130, whatever is imported at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "harness/runtime/infer.py": "pydantic",
    "harness/runtime/score.py": "pydantic",
    "harness/baseline/__main__.py": "numpy",
    "checker/__main__.py": "numpy",
    "checker/preview.py": "numpy",
    "scorer/__main__.py": "contract.metrics",
    "scorer/report.py": "numpy",
    "scorer/liquid/__main__.py": "argparse",
    "scripts/add_case.py": "numpy",
    "scripts/download_checkpoints.py": "checkpoint_sources",
    "scripts/download_data.py": "dataset_cases",
    "scripts/make_demo_case.py": "case_tree",
    "scripts/pack_world.py": "numpy",
    "scripts/place_renders.py": "case_tree",
    "scripts/image_selftest.py": "numpy",
}
"""Each program, and a module that it imports, at which the interrupt arrives."""

EARLY = {"scorer/__main__.py": "scorer.console", "scripts/image_selftest.py": "json"}

RUN = """
import os, runpy, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)

program, moment, *sys.path[:0] = sys.argv[1:]
sys.argv = ["program"]
sys.meta_path.insert(0, Interrupter())
runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.parametrize(("program", "moment"), PROGRAMS.items(), ids=PROGRAMS)
@pytest.mark.parametrize("early", [False, True], ids=["late", "early"])
def test_an_interrupt_during_imports(repository: Path, program: str, moment: str, early: bool) -> None:
    path = repository / program
    if early:  # one of the first imports after the handler stands
        moment = EARLY.get(program, "argparse")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), moment, str(repository), str(path.parent)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == "interrupted; run the same command again to continue\n"
    assert done.stdout == ""
    assert done.returncode == 130


@pytest.mark.parametrize("module", ["scorer", "scorer.report", "checker", "checker.preview"])
def test_an_interrupt_while_a_package_is_imported(repository: Path, module: str) -> None:
    # python -m imports the package before the module in it, and argv[0] is "-m" until that is done.
    script = RUN.replace('["program"]', '["-m"]').replace(
        'run_path(program, run_name="__main__")', 'run_module(program, run_name="__main__", alter_sys=True)'
    )
    moment = "scorer.cachedir" if module.startswith("scorer") else "numpy"
    done = subprocess.run(
        [sys.executable, "-c", script, module, moment, str(repository)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == "interrupted; run the same command again to continue\n"
    assert done.returncode == 130


def test_an_ignored_interrupt_stays_ignored() -> None:
    # nohup, and background jobs of a shell, ask for that.
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from contract.errors import end_on_interrupt, run_program\n"
        "end_on_interrupt()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "run_program(lambda: os.kill(os.getpid(), signal.SIGINT) or 7)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_after_the_imports_a_program_is_interrupted_in_order() -> None:
    script = (
        "import os, signal, sys\n"
        "from contract.errors import end_on_interrupt, run_program\n"
        "end_on_interrupt()\n"
        "def main():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    finally:\n"
        "        sys.stdout.write('tidied up')\n"
        "run_program(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "tidied up")
    assert done.stderr == "interrupted; run the same command again to continue\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
