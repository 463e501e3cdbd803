"""Plain processes under a warden: nothing that a job starts outlives it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from harness_lab import eventually, mentioning

from contract.errors import UserError
from harness.runtime.backends.base import LABEL, Job, Outcome
from harness.runtime.backends.host import HostBackend

PYTHON = sys.executable


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """A word that stands in the environment of every process of the test's job."""
    word = f"mark-{os.getpid()}-{tmp_path.name}"
    yield word
    left = mentioning(word)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


def job(command: list[str], tmp_path: Path, mark: str = "", **fields: object) -> Job:
    return Job(
        name=f"test-{tmp_path.name}-{mark}",
        command=tuple(command),
        workdir=PurePosixPath(tmp_path),
        env={"MARK": mark},
        labels={f"{LABEL}.run": "a/run"},
        **fields,  # type: ignore[arg-type]
    )


def run(
    command: list[str],
    tmp_path: Path,
    mark: str = "",
    timeout: float = 60.0,
    grace: float = 0.3,
    stop: threading.Event | None = None,
) -> Outcome:
    return HostBackend(grace).run(
        job(command, tmp_path, mark), tmp_path / "log", timeout, stop or threading.Event()
    )


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "log").read_text(encoding="utf-8")


def test_the_log_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n", encoding="utf-8")
    run(["echo", "after"], tmp_path)
    assert log_of(tmp_path) == "before\nafter\n"


def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert run([PYTHON, "-c", "import sys; print(repr(sys.stdin.read()))"], tmp_path).exit_code == 0
    assert log_of(tmp_path) == "''\n"


def test_no_descriptor_of_the_launcher_leaks(tmp_path: Path) -> None:
    run([PYTHON, "-c", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)[:-1])"], tmp_path)
    assert log_of(tmp_path) == "['0', '1', '2']\n"


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATORS_KEY", "do-not-pass")
    monkeypatch.setenv("LD_PRELOAD", "")
    run(["env"], tmp_path)
    names = {line.split("=")[0] for line in log_of(tmp_path).splitlines()}
    assert names <= {
        "PATH",
        "LANG",
        "PYTHONUNBUFFERED",
        "PYTHONPATH",
        "CUDA_VISIBLE_DEVICES",
        "FDCB_JOB",
        "MARK",
    }
    assert log_of(tmp_path).count(str(Path(PYTHON).parent)) >= 1


DAEMON = """
import os, sys, time, signal
for _ in range(3):                      # three generations, each in a session of its own
    if os.fork():
        time.sleep({parent}); os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.chdir('/'); os.closerange(0, 3)
open({path!r}, 'w').write(str(os.getpid()))
while True: time.sleep(0.1)
"""


@pytest.mark.parametrize("parent", [0, 1000])
def test_daemonised_grandchildren_die_with_the_timeout(tmp_path: Path, mark: str, parent: int) -> None:
    pid_file = tmp_path / "pid"
    script = DAEMON.format(parent=parent, path=str(pid_file))
    command = ["sh", "-c", f'{PYTHON} -c "$1" & sleep 1000', "sh", script]
    stop = threading.Event()
    threading.Thread(target=lambda: (eventually(pid_file.exists), stop.set())).start()
    outcome = run(command, tmp_path, mark, stop=stop)
    assert (outcome.interrupted, outcome.timed_out, outcome.gone) == (True, False, True)
    assert not mentioning(mark)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    outcome = run(["no-such-program-4dcb"], tmp_path)
    assert outcome.exit_code is None
    assert "could not be started" in outcome.error
    assert "no-such-program-4dcb" in outcome.error or "No such file" in outcome.error


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    backend = HostBackend(0.3)
    lost = job(["true"], tmp_path / "nowhere")
    outcome = backend.run(lost, tmp_path / "log", 60, threading.Event())
    assert outcome.exit_code is None
    assert "could not be started" in outcome.error


def test_jobs_are_listed_with_their_owner(tmp_path: Path, mark: str) -> None:
    backend, stop = HostBackend(0.3), threading.Event()
    sleeper = job(["sleep", "1000"], tmp_path, mark)
    thread = threading.Thread(target=backend.run, args=(sleeper, tmp_path / "log", 60.0, stop))
    thread.start()
    try:
        assert eventually(lambda: any(o.name == sleeper.name for o in backend.orphans()))
        (orphan,) = [o for o in backend.orphans() if o.name == sleeper.name]
        assert (orphan.run, orphan.dead_owner) == ("a/run", False)
    finally:
        stop.set()
        thread.join()
    assert not any(o.name == sleeper.name for o in backend.orphans())


def test_jobs_of_a_dead_launcher_are_listed_and_removed(tmp_path: Path, mark: str) -> None:
    # A process that carries the mark of a launcher that is gone, with no warden above it.
    stale = json.dumps({"boot_id": "an earlier boot", "name": mark, "pid": 1, "run": "r"})
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {"FDCB_JOB": stale, "MARK": mark})
    threading.Thread(target=os.waitpid, args=(pid, 0)).start()
    backend = HostBackend()
    (orphan,) = [o for o in backend.orphans() if o.name == mark]
    assert orphan.dead_owner
    backend.remove(orphan)
    assert not any(o.name == mark for o in backend.orphans())


def test_a_missing_program_and_an_image_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'no-such-program-4dcb' was not found"):
        HostBackend().check_program(job(["no-such-program-4dcb"], tmp_path))
    with pytest.raises(UserError, match="runs no images"):
        HostBackend().check("some/image")
    assert HostBackend().check("").startswith("host ")
