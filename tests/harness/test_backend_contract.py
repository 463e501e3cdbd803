"""What docker, sif and host promise alike, each with its real engine; what one cannot keep, it refuses."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from backend_rigs import LONG, RUN, Rig, Run, children, sif_backend, until
from harness_lab import mentioning

from contract.errors import UserError
from harness.runtime.backends import sif_cgroup
from harness.runtime.backends.base import Limits, Mount, Orphan, Outcome
from harness.runtime.backends.docker import DockerBackend
from harness.runtime.backends.docker_spec import host_arguments
from harness.runtime.backends.host import HostBackend
from harness.runtime.backends.sif import SifBackend
from harness.runtime.backends.sif_spec import Scratch

pytest_plugins = ("docker_engine", "apptainer_engine")

DOCKER = pytest.param("docker", marks=pytest.mark.docker)
SIF = pytest.param("sif", marks=pytest.mark.sif)
ALL = pytest.mark.parametrize("kind", [DOCKER, SIF, "host"])
CONTAINERS = pytest.mark.parametrize("kind", [DOCKER, SIF])


@pytest.fixture
def rig(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """A backend, and a look at the end that nothing of its jobs is left."""
    fixture = {"docker": "base_image", "sif": "base_sif"}.get(kind)
    shared = tmp_path / "shared, folder"
    shared.mkdir()
    made = Rig(kind, str(request.getfixturevalue(fixture)) if fixture else "", shared)
    yield made
    left = mentioning(made.mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left behind"


# ---- the command


@ALL
@pytest.mark.parametrize("status", [0, 255])
def test_exit_status_both_streams_and_the_working_directory(rig: Rig, status: int) -> None:
    rig.log.write_text("before\n")
    job = rig.job(f"pwd; cat; echo err >&2; exit {status}")
    outcome = rig.once(job)
    assert outcome == Outcome(status, outcome.seconds)
    assert sorted(rig.said().splitlines()) == sorted(["before", str(rig.inside), "err"])
    assert not rig.exists(job)


@ALL
def test_words_reach_the_command_unchanged(rig: Rig) -> None:
    words = ["a b", "$HOME", "*", "", "'", '"', "line\nbreak", "ümläut", "-n", "`id`", "\\n", "{}", "%s"]
    script = 'for word in "$@"; do printf "<%s>" "$word"; done'
    assert rig.once(rig.job(script, *words)).exit_code == 0
    assert rig.said() == "".join(f"<{word}>" for word in words)


@ALL
def test_a_command_that_kills_itself_ends_as_in_a_shell(rig: Rig) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV):
        # A process group's leader in a container is not its first process: the signal is not blocked.
        outcome = rig.once(rig.job(f"kill -{int(number)} $$; sleep 5"))
        assert (outcome.exit_code, outcome.error, outcome.oom_killed) == (128 + number, "", False)


@ALL
def test_a_program_that_does_not_exist(rig: Rig) -> None:
    job = dataclasses.replace(rig.job(""), command=("no-such-program-4dcb",))
    outcome = rig.backend.run(job, rig.log, LONG, threading.Event())
    assert outcome.exit_code in (127, None)
    assert outcome.gone
    said = outcome.error + (rig.said() if rig.log.exists() else "")
    assert "no-such-program-4dcb" in said or "No such file" in said


# ---- variables


@ALL
def test_variables_arrive_as_they_are_and_no_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATORS_KEY", "do-not-pass")
    monkeypatch.setenv("APPTAINERENV_SNEAKED", "do-not-pass")
    monkeypatch.setenv("APPTAINER_BIND", "/etc:/sneaked")
    values = {
        "PLAIN": "p q",
        "LIST": "a,b=c",
        "HARD": "$(id) `id` $HOME \"x\" 'y' \\n\\",
        "LINES": "1\n2",
        "EMPTY": "",
    }
    script = (
        'for n in "$@"; do eval "printf \'%s|\' \\"\\${$n-unset}\\""; done; '
        "env | grep -c do-not-pass; ls /sneaked"
    )
    rig.once(rig.job(script, *values, env=values))
    shown = "".join(f"{value}|" for value in values.values())
    assert rig.said().startswith(shown + "0\n")
    assert "No such file" in rig.said()


@ALL
def test_secrets_reach_the_command_and_nobody_else(rig: Rig) -> None:
    script = 'test "$KEY" = "s3cr3t-""value" && touch told; until [ -e go ]; do sleep 0.05; done'
    job = rig.job(script, secrets={"KEY": "s3cr3t-value"})
    run = Run(rig, job)
    until((rig.shared / "told").exists)
    seen = rig.inspect(job) + " ".join(rig.backend.describe(job))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            seen += path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    (rig.shared / "go").touch()
    assert run.result().exit_code == 0
    assert "s3cr3t-value" not in seen
    assert "KEY=***" in " ".join(rig.backend.describe(job))


# ---- files


@CONTAINERS
def test_a_mount_is_read_only_unless_it_says_otherwise(rig: Rig, tmp_path: Path) -> None:
    source = tmp_path / 'in: "put", x'
    source.mkdir()
    (source / "a").write_text("content")
    single = tmp_path / "single.txt"
    single.write_text("one")
    mounts = (Mount(source, PurePosixPath("/input")), Mount(single, PurePosixPath("/deep/er/file")))
    script = "cat /input/a /deep/er/file; touch /input/b; echo x > /deep/er/file; touch made"
    assert rig.once(rig.job(script, mounts=mounts)).exit_code == 0
    assert "contentone" in rig.said()
    assert rig.said().count("Read-only") == 2
    assert os.listdir(source) == ["a"]
    assert single.read_text() == "one"
    assert (rig.shared / "made").exists()


@CONTAINERS
def test_a_source_that_is_missing_is_an_error_and_is_not_made(rig: Rig, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    outcome = rig.backend.run(
        rig.job("true", mounts=(Mount(lost, PurePosixPath("/x")),)), rig.log, LONG, threading.Event()
    )
    assert outcome.exit_code is None
    assert str(lost) in outcome.error
    assert not lost.exists()


@CONTAINERS
def test_the_machines_files_are_not_there(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("x")
    script = f"ls {tmp_path}; ls {Path.home() / '.cache'}; ls {Path(__file__)}; ls /home"
    rig.once(rig.job(script))
    assert rig.said().count("No such file") == 3


@ALL
def test_what_is_written_is_the_callers_and_there_is_room_for_it(rig: Rig) -> None:
    # 80 MB: more than an engine's own scratch layer may hold.
    script = (
        "umask; echo x > file; mkdir -p sub/dir; echo y > sub/dir/file; echo z > $HOME/z && echo home; "
        "head -c 80000000 /dev/zero > /tmp/4dcb-big-$$ && rm /tmp/4dcb-big-$$ && echo big; "
        "mkdir -p ${XDG_CACHE_HOME:-$HOME/.cache}/c && echo cache; "
        "touch /var/tmp/4dcb-$$ && rm /var/tmp/4dcb-$$; "
        "python3 -c 'import getpass, tempfile; print(getpass.getuser() != str(), tempfile.gettempdir())'"
    )
    env = {} if rig.contained else {"HOME": str(rig.shared)}
    outcome = rig.once(rig.job(script, env=env))
    assert outcome.exit_code == 0
    assert rig.said().split() == ["0022", "home", "big", "cache", "True", "/tmp"]
    below = [rig.shared, *rig.shared.rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in below} == {(os.getuid(), os.getgid())}
    assert {path.stat().st_mode & 0o777 for path in below if path.is_file()} == {0o644}


@CONTAINERS
def test_a_mounted_home_is_the_home(rig: Rig, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    session = tmp_path / "session"
    session.mkdir()
    (home / ".agent").mkdir()
    mounts = (
        Mount(home, PurePosixPath("/root"), writable=True),
        Mount(session, PurePosixPath("/root/.agent"), writable=True),
    )
    assert rig.once(rig.job("cd; pwd; touch kept .agent/log; cd ~; pwd", mounts=mounts)).exit_code == 0
    assert rig.said().split() == ["/root", "/root"]
    assert (home / "kept").exists()
    assert (session / "log").exists()


@CONTAINERS
def test_a_root_job_leaves_the_callers_files(rig: Rig) -> None:
    script = "id -u; mkdir -p a/b; echo x > a/b/c; chmod 400 a/b/c; chmod 500 a/b; chmod 000 a"
    assert rig.once(rig.job(script, as_root=True)).exit_code == 0
    assert rig.said() == ("0\n" if rig.kind == "docker" else f"{os.getuid()}\n")
    (rig.shared / "a").chmod(0o700)
    assert (rig.shared / "a/b/c").read_text() == "x\n"
    assert {path.lstat().st_uid for path in rig.shared.rglob("*")} == {os.getuid()}


@pytest.mark.parametrize("kind", [SIF])
def test_scratch_that_the_caller_gives_is_used_and_kept(rig: Rig, tmp_path: Path) -> None:
    job = rig.job("echo t > /tmp/t; echo v > /var/tmp/v; ls /tmp", scratch=tmp_path / "scratch")
    assert rig.once(job).exit_code == 0
    assert rig.said() == "t\n"
    assert (tmp_path / "scratch/tmp/t").read_text() == "t\n"
    assert (tmp_path / "scratch/vartmp/v").read_text() == "v\n"


# ---- network


@CONTAINERS
def test_without_network_there_is_only_the_loopback(rig: Rig) -> None:
    count = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -vc '^lo$'"
    rig.once(rig.job(count, network=False))
    assert rig.said() == "0\n"
    rig.log.unlink()
    rig.once(rig.job(count))
    assert int(rig.said()) > 0


@CONTAINERS
def test_without_network_the_machine_itself_is_out_of_reach(rig: Rig) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        reach = (
            "import socket, sys\n"
            "for address in sys.argv[2:]:\n"
            " try: socket.create_connection((address, int(sys.argv[1])), 3); print('reached')\n"
            " except OSError: print('cut off')"
        )
        words = [reach, str(port), "127.0.0.1", str(found[0][4][0])]
        script = 'exec python3 -c "$@"'
        assert rig.once(rig.job(script, *words, network=False)).exit_code == 0
    assert rig.said() == "cut off\ncut off\n"


# ---- limits


@CONTAINERS
def test_limits_stand_in_the_control_group(rig: Rig) -> None:
    limits = Limits(cpus=0.5, memory_mb=96, pids=50)
    run = Run(rig, rig.job("until [ -e go ]; do sleep 0.05; done", limits=limits))
    wanted = {"cpus": 0.5, "memory": 96 << 20, "pids": 50}

    def unkept(limits: dict[str, float]) -> int:
        """The fewest limits that are not kept for any process of the job."""
        return min((len(sif_cgroup.unkept(sif_cgroup.groups(p), limits)) for p in rig.processes()), default=9)

    until(lambda: unkept(wanted) == 0)
    too_tight = unkept({"cpus": 0.4, "memory": 90 << 20, "pids": 49})
    (rig.shared / "go").touch()
    assert run.result().exit_code == 0
    assert too_tight == 3
    assert len(sif_cgroup.unkept(sif_cgroup.groups(os.getpid()), wanted)) == 3


@CONTAINERS
def test_no_more_processes_than_allowed(rig: Rig) -> None:
    # Each holds a place until the count is over; the shell gives up at the first that it cannot start.
    script = "(for i in $(seq 60); do sleep 1000 & echo $i; done) > count 2>&1; wc -l < count"
    assert rig.once(rig.job(script, limits=Limits(pids=30))).gone
    assert "fork" in (rig.shared / "count").read_text()
    assert int(rig.said().split()[-1]) < 32


@CONTAINERS
def test_running_out_of_memory_is_reported_as_such(rig: Rig) -> None:
    hungry = "exec python3 -c 'x = bytearray(10**9); print(len(x))'"
    outcome = rig.once(rig.job(hungry, limits=Limits(memory_mb=64)))
    assert (outcome.exit_code, outcome.oom_killed, outcome.error) == (137, True, "")
    # Within the limit nothing is reported.
    outcome = rig.once(rig.job("exec python3 -c 'x = bytearray(10**7)'", limits=Limits(memory_mb=64)))
    assert (outcome.exit_code, outcome.oom_killed) == (0, False)


@CONTAINERS
def test_no_more_processors_than_there_are(rig: Rig) -> None:
    outcome = rig.once(rig.job("true", limits=Limits(cpus=4096)))
    assert outcome.exit_code == 0
    assert "4096 processors were asked for" in outcome.warnings[0]


@pytest.mark.parametrize("kind", [DOCKER])
def test_the_size_of_shared_memory(rig: Rig) -> None:
    assert rig.once(rig.job("df -k /dev/shm | tail -1", limits=Limits(shm_mb=8))).exit_code == 0
    assert rig.said().split()[1] == "8192"


@pytest.mark.parametrize(
    ("kind", "fields", "part"),
    [
        pytest.param("sif", {"limits": Limits(shm_mb=8)}, "shm_mb", marks=pytest.mark.sif),
        pytest.param("sif", {"secrets": {"HOME": "/x"}}, "HOME", marks=pytest.mark.sif),
        ("host", {"network": False}, "network"),
        ("host", {"limits": Limits(memory_mb=5)}, "memory_mb"),
        ("host", {"limits": Limits(cpus=1.0)}, "cpus"),
        ("host", {"limits": Limits(pids=5)}, "pids"),
        ("host", {"limits": Limits(shm_mb=5)}, "shm_mb"),
        ("host", {"as_root": True}, "root"),
        ("host", {"mounts": (Mount(Path("/"), PurePosixPath("/x")),)}, "mount"),
    ],
)
def test_what_a_backend_cannot_keep_it_refuses(rig: Rig, fields: dict[str, object], part: str) -> None:
    with pytest.raises(UserError, match=part) as raised:
        rig.once(rig.job("true", **fields))
    assert raised.value.next_step or part == "HOME"


@pytest.mark.sif
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to act for another user")
@pytest.mark.parametrize("field", ["cpus", "memory_mb", "pids"])
def test_a_limit_that_the_machine_cannot_keep_is_refused(base_sif: Path, tmp_path: Path, field: str) -> None:
    """A stand-in for a user without control groups: the program says so, and the probe hears it."""
    program = tmp_path / "apptainer"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo apptainer version 1.4.5; exit; }\n'
        'case "$*" in *--cpus*|*--memory*|*--pids-limit*)\n'
        '  echo "INFO:    gocryptfs not found" >&2\n'
        '  echo "FATAL:   container creation failed: cannot use cgroups" >&2; exit 255;;\nesac\n'
    )
    program.chmod(0o755)
    rig = Rig("sif", str(base_sif), tmp_path)
    rig.backend = SifBackend(str(program))
    rig.backend.check_job(rig.job("true"))
    with pytest.raises(UserError, match="as asked: container creation failed: cannot use cgroups") as raised:
        rig.backend.check_job(rig.job("true", limits=Limits(**{field: 8})))
    assert "cgroups v2" in raised.value.expected


# ---- GPUs


@ALL
@pytest.mark.parametrize("gpus", [("1",), ("0", "GPU-5a3e"), (), None])
def test_gpus_are_pinned(rig: Rig, gpus: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    job = rig.job("true", gpus=gpus)
    if rig.kind == "docker":
        requests = host_arguments(job, rig.backend._engine).get("device_requests", [])
        ids = [(request["DeviceIDs"], request["Count"]) for request in requests]
        assert ids == ([] if gpus == () else [([], -1)] if gpus is None else [(list(gpus), 0)])
    elif rig.kind == "sif":
        backend = sif_backend(rig)
        orders = backend._orders(job, Scratch(rig.shared), 1.0, rig.shared)
        assert ("--nv" in orders["start"]) is (gpus != ())
        assert ("10_nvidia.json" in " ".join(orders["start"])) is (gpus != ())
        variable = orders["exec_env"].get("APPTAINERENV_CUDA_VISIBLE_DEVICES")
        assert variable == (None if gpus is None else ",".join(gpus))
    else:
        assert isinstance(rig.backend, HostBackend)
        expected = "0,1,2,3" if gpus is None else ",".join(gpus)
        assert rig.backend.environment(job)["CUDA_VISIBLE_DEVICES"] == expected


@pytest.mark.parametrize("kind", [SIF, "host"])
def test_the_pin_reaches_the_command(rig: Rig) -> None:
    assert rig.once(rig.job("echo ${CUDA_VISIBLE_DEVICES-unset}", gpus=("3", "5"))).exit_code == 0
    assert rig.said().splitlines()[-1] == "3,5"


# ---- time and stopping


@ALL
@pytest.mark.parametrize(
    ("script", "statuses"),
    [
        ("sleep 1000", {143}),
        ("trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done", {5}),
        ("trap '' TERM; echo ready; while :; do sleep 0.05; done", {137}),
    ],
)
def test_the_time_limit(rig: Rig, script: str, statuses: set[int]) -> None:
    job = rig.job(script)
    outcome = rig.once(job, timeout=1.5)
    assert (outcome.timed_out, outcome.interrupted, outcome.gone, outcome.error) == (True, False, True, "")
    # On a loaded machine the limit may come before the shell has set its trap.
    assert outcome.exit_code in statuses | {143}
    assert outcome.killed_after_sec is not None
    assert outcome.killed_after_sec >= 1.5
    assert not rig.exists(job)
    if outcome.exit_code == 5:
        assert rig.said().startswith("ready\n")
        assert rig.said().endswith("saved\n")


@ALL
def test_a_stop_while_it_runs(rig: Rig) -> None:
    job = rig.job("trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.05; done")
    run = Run(rig, job)
    until(lambda: rig.log.exists() and rig.said() == "hi\n")
    run.stop.set()
    outcome = run.result()
    assert (outcome.interrupted, outcome.timed_out, outcome.exit_code, outcome.gone) == (True, False, 0, True)
    # A shell may say that its sleep was terminated: the signal goes to all where there is no init to get it.
    assert rig.said().startswith("hi\n")
    assert rig.said().endswith("bye\n")
    assert not rig.exists(job)


@CONTAINERS
def test_a_stop_before_the_start_starts_nothing(rig: Rig) -> None:
    stop = threading.Event()
    stop.set()
    job = rig.job("touch made")
    outcome = rig.backend.run(job, rig.log, LONG, stop)
    assert (outcome.exit_code, outcome.interrupted, outcome.gone) == (None, True, True)
    assert not (rig.shared / "made").exists()
    assert not rig.exists(job)


DAEMON = """
import os, sys, time, signal
for _ in range(3):                      # three generations, each in a session of its own
    if os.fork(): os._exit(0)
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
open('daemon', 'w').write('on')
os.closerange(0, 3)
while True: time.sleep(0.1)
"""


@ALL
@pytest.mark.parametrize("ends", ["exit 3", "sleep 1000"])
def test_background_processes_die_with_the_command(rig: Rig, ends: str) -> None:
    script = f'python3 -c "$1" "$0" & until [ -s daemon ]; do sleep 0.02; done; {ends}'
    job = rig.job(script, DAEMON)
    outcome = rig.once(job, timeout=LONG if "exit" in ends else 3.0)
    assert outcome.gone
    assert outcome.exit_code == (3 if "exit" in ends else 143)
    assert not rig.exists(job)


@ALL
def test_a_tree_that_keeps_forking_is_ended(rig: Rig) -> None:
    forker = "import os, time\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid(); time.sleep(0.002)"
    job = rig.job('python3 -c "$1" "$0" & sleep 1000', forker)
    outcome = rig.once(job, timeout=1.0)
    assert (outcome.timed_out, outcome.gone) == (True, True)
    assert not rig.exists(job)


# ---- output


@ALL
def test_output_is_on_disk_while_the_job_runs(rig: Rig) -> None:
    run = Run(rig, rig.job("echo first; until [ -e go ]; do sleep 0.05; done; printf last"))
    until(lambda: rig.log.exists() and rig.said() == "first\n")
    assert run.is_alive()
    (rig.shared / "go").touch()
    assert run.result().exit_code == 0
    assert rig.said() == "first\nlast"


@ALL
def test_much_output_is_whole(rig: Rig) -> None:
    lines = "for i in range(60000): print(i, 'x' * 60)"
    assert rig.once(rig.job('exec python3 -c "$1"', lines)).exit_code == 0
    assert rig.said() == "".join(f"{i} {'x' * 60}\n" for i in range(60000))


@ALL
def test_several_at_once_keep_apart(rig: Rig, tmp_path: Path) -> None:
    jobs = [rig.job(f"echo {i}; exit {i}") for i in range(3)]
    runs = [Run(rig, job, log=tmp_path / f"{i}.log") for i, job in enumerate(jobs)]
    assert [run.result().exit_code for run in runs] == [0, 1, 2]
    assert [(tmp_path / f"{i}.log").read_text() for i in range(3)] == ["0\n", "1\n", "2\n"]


# ---- engines that are not there


@ALL
def test_a_missing_image(rig: Rig, tmp_path: Path) -> None:
    lost = {"docker": "4dcb/no-such-image:x", "sif": str(tmp_path / "lost.sif"), "host": "some/image"}[
        rig.kind
    ]
    with pytest.raises(UserError, match=Path(lost).name) as raised:
        rig.backend.check(lost)
    assert raised.value.next_step or rig.kind == "host"
    if rig.contained:
        job = dataclasses.replace(rig.job("true"), image=lost)
        outcome = rig.backend.run(job, rig.log, LONG, threading.Event())
        assert (outcome.exit_code, outcome.gone) == (None, True)
        assert Path(lost).name in outcome.error


@CONTAINERS
def test_the_image_has_a_digest(rig: Rig) -> None:
    assert rig.backend.check(rig.image).startswith("sha256:")
    assert rig.backend.check(rig.image) == rig.backend.check(rig.image)


@CONTAINERS
def test_an_engine_that_is_down(rig: Rig, tmp_path: Path) -> None:
    down: DockerBackend | SifBackend = DockerBackend(host=f"unix://{tmp_path}/no.sock", patience=0.2)
    if rig.kind == "sif":
        program = tmp_path / "apptainer"
        program.write_text("#!/bin/sh\necho 'FATAL: out of order' >&2; exit 255\n")
        program.chmod(0o755)
        down = SifBackend(str(program))
    for call in (lambda: down.check(rig.image), down.orphans):
        with pytest.raises(UserError, match=r"cannot be used|out of order"):
            call()
    outcome = down.run(rig.job("true"), rig.log, LONG, threading.Event())
    assert (outcome.exit_code, outcome.gone) == (None, True)
    assert "cannot be" in outcome.error


@CONTAINERS
def test_a_container_that_somebody_ends_is_lost_not_failed(rig: Rig) -> None:
    job = rig.job("echo on; sleep 1000")
    run = Run(rig, job)
    until(lambda: rig.log.exists() and rig.said() == "on\n")
    rig.end_from_outside(job)
    outcome = run.result()
    assert "from outside" in outcome.error or "vanished" in outcome.error
    assert (outcome.gone, outcome.interrupted) == (True, False)
    assert not rig.exists(job)


# ---- launchers that die


@ALL
def test_a_killed_launcher_leaves_nothing(rig: Rig) -> None:
    process, job = rig.launcher("echo on; (setsid sleep 1000 &); sleep 1000")
    try:
        until(lambda: rig.log.exists() and "on" in rig.said())
        (living,) = [orphan for orphan in rig.backend.orphans() if orphan.name == job.name]
        assert living == Orphan(job.name, RUN, False)
        with pytest.raises(RuntimeError, match="left alone"):
            rig.backend.remove(living)
        assert rig.processes()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: not rig.exists(job))
    until(lambda: not any(orphan.name == job.name for orphan in rig.backend.orphans()))


@CONTAINERS
def test_without_its_warden_the_next_launcher_removes_it(rig: Rig) -> None:
    process, job = rig.launcher("echo on; sleep 1000")
    try:
        until(lambda: rig.log.exists() and "on" in rig.said())
        wardens = children(process.pid, "warden.py")
        assert wardens
    finally:
        for pid in (*children(process.pid, "warden.py"), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    orphan = next(orphan for orphan in rig.backend.orphans() if orphan.name == job.name)
    assert orphan == Orphan(job.name, RUN, True)
    rig.backend.remove(orphan)
    rig.backend.remove(orphan)
    until(lambda: not rig.exists(job))
    assert not any(other.name == job.name for other in rig.backend.orphans())


@pytest.mark.parametrize("kind", [SIF, "host"])
def test_a_killed_warden_is_an_error_of_the_environment(rig: Rig) -> None:
    job = rig.job("echo on; sleep 1000")
    run = Run(rig, job)
    until(lambda: rig.log.exists() and "on" in rig.said())
    for pid in children(os.getpid(), job.name):
        os.kill(pid, signal.SIGKILL)
    outcome = run.result()
    assert "warden" in outcome.error
    assert (outcome.exit_code, outcome.gone) == (None, True)
    until(lambda: not rig.exists(job))
    assert not any(other.name == job.name for other in rig.backend.orphans())


@CONTAINERS
def test_a_name_that_a_living_launcher_has(rig: Rig) -> None:
    job = rig.job("echo on; until [ -e go ]; do sleep 0.05; done")
    run = Run(rig, job)
    until(lambda: rig.log.exists() and rig.said() == "on\n")
    outcome = rig.backend.run(job, rig.log, LONG, threading.Event())
    (rig.shared / "go").touch()
    assert "exists already" in outcome.error
    assert outcome.exit_code is None
    assert run.result().exit_code == 0
