"""Jobs and runtime files: what is read, and one clear line for everything that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness_lab import Lab
from pydantic import BaseModel

from contract.errors import UserError
from harness.runtime.agentconfig import AgentTable
from harness.runtime.config import REPOSITORY, RuntimeFile, find_file, load_runtime
from harness.runtime.jobs import MOST_RUNS, JobsFile, JobTable, load_jobs
from harness.runtime.variables import expand_env

JOB = '[[job]]\ncase = "B_01"\nagent = "a"\nmodel = "m"\neffort = "none"\n'


def runtime_error(tmp_path: Path, text: str) -> str:
    path = tmp_path / "runtime.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_runtime(path)
    line = caught.value.line()
    assert "\n" not in line
    assert str(path) in line
    return line


def jobs_error(lab: Lab, text: str) -> str:
    lab.jobs_path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_jobs(lab.jobs_path, lab.cases)
    line = caught.value.line()
    assert "\n" not in line
    assert str(lab.jobs_path) in line
    return line


def test_an_empty_runtime_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "runtime.toml"
    path.write_text("", encoding="utf-8")
    runtime = load_runtime(path)
    assert (runtime.backend, runtime.file.agent.timeout_sec) == ("host", 21_600)
    assert (runtime.cases, runtime.auth) == (REPOSITORY / "cases", REPOSITORY / ".auth")
    assert runtime.checkpoints == REPOSITORY / "checkpoints"


def test_the_template_holds_exactly_the_defaults(tmp_path: Path) -> None:
    template = load_runtime(REPOSITORY / "harness/runtime/templates/runtime.example.toml")
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    empty = load_runtime(tmp_path / "empty.toml")
    shown = template.file.model_dump()
    assert shown["agent"].pop("agents").keys() == {"baseline"}
    expected = empty.file.model_dump()
    expected["agent"].pop("agents")
    expected["agent"]["image"]["docker"] = "4dcb/agent:dev"
    expected["scorer"]["image"]["docker"] = "4dcb/scorer:dev"
    expected["docker"]["executable"] = "docker"
    assert shown == expected


def test_the_template_read_with_every_line_switched_on(tmp_path: Path) -> None:
    # Lines that are commented out are examples of keys: they must be keys that exist.
    lines = (
        (REPOSITORY / "harness/runtime/templates/runtime.example.toml")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    switched = [
        line.removeprefix("# ") if line.startswith(("# [", "# ")) and _is_toml(line) else line
        for line in lines
    ]
    path = tmp_path / "runtime.toml"
    path.write_text("\n".join(switched), encoding="utf-8")
    runtime = load_runtime(path)
    assert set(runtime.file.agent.agents) == {"claude", "codex", "antigravity", "stirrup", "baseline", "mine"}
    assert runtime.file.agent.limits.pids == 4096
    assert runtime.file.scorer.task_timeouts == {"mesh": 3600.0}
    assert runtime.file.budget.max_usd_per_run == 25.0
    assert runtime.price_file == REPOSITORY / "prices.toml"


def test_every_key_of_both_files_is_documented() -> None:
    text = (REPOSITORY / "docs/configuration.md").read_text(encoding="utf-8")
    todo: list[type[BaseModel]] = [RuntimeFile, AgentTable, JobsFile, JobTable]
    seen = 0
    while todo:
        for name, field in todo.pop().model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                todo.append(inner)
            elif name not in ("agents", "job"):
                seen += 1
                assert re.search(rf"`(job\.)?{name}`", text), f"{name} is not in docs/configuration.md"
    assert seen > 50


def _is_toml(line: str) -> bool:
    text = line.removeprefix("# ")
    return text.startswith(("[agent", "[scorer", "[budget", "[prices")) or " = " in text.split("#")[0]


def test_the_jobs_template_is_valid(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ("synthetic/demo_rigid",))
    jobs = load_jobs(REPOSITORY / "harness/runtime/templates/jobs.example.toml", lab.cases)
    assert [str(key.path) for key in jobs.keys] == ["synthetic/demo_rigid/baseline-none-none/1"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('backnd = "host"', ["top level", "unknown key 'backnd'", "did you mean 'backend'"]),
        ("[agent]\ntimeout_secs = 5", ["[agent]", "unknown key 'timeout_secs'",
        "did you mean 'timeout_sec'"]),
        ("[agent.limits]\nmemory = 5", ["[agent.limits]", "'memory'", "did you mean 'memory_mb'"]),
        ("[agent.enviroment]\ngpus = 'all'", ["[agent.enviroment]", "did you mean [agent.environment]"]),
        ("[agent.claud]\nenv = {}", ["[agent.claud]", "did you mean [agent.claude]"]),
        ("[agent.claude]\ncredentials = 'x'", ["[agent.claude]", "did you mean 'credential'"]),
        ("[agent.mine]\ncommand = ['x']\nsession = 'y'", ["[agent.mine]", "'session'", "'session_dir'"]),
        ("[scorer.enviroment]\ncpus = 1", ["[scorer]", "'enviroment'", "did you mean 'environment'"]),
        ("[scorer.environment]\nmemory = 1", ["[scorer.environment]", "did you mean 'memory_mb'"]),
        ("[doker]\nexecutable = 'x'", ["unknown key 'doker'", "did you mean 'docker'"]),
        ("zzz = 1", ["unknown key 'zzz'", "expected one of", "runs_root"]),
        ("backend = 'podman'", ["backend = 'podman'", "expected 'host' or 'docker'"]),
        ("backend = 'hots'", ["expected 'host' or 'docker'", "did you mean 'host'?"]),
        ("backend = 3", ["backend = 3", "valid string"]),
        ("runs_root = ''", ["runs_root = ''", "path of a directory"]),
        ('cases_root = "a\\u0000b"', ["cases_root", "path of a directory"]),
        ("data_root = '~no-such-user-4dcb/x'", ["data_root", "no home directory", "~no-such-user-4dcb"]),
        ("[scorer]\ncheckpoints = ''", ["[scorer]", "checkpoints"]),
        ("[scorer]\njobs = 0", ["[scorer]", "jobs = 0"]),
        ("[agent.mine]\ncommand = ['x']\nsession_dir = '" + 201 * "s" + "'", ["session_dir", "200 bytes"]),
        ("a = " + 5000 * "9", ["not valid TOML"]),
        ("a = " + 100_000 * "[", ["not valid TOML"]),
        ("[agent]\ntimeout_sec = 0", ["[agent]", "timeout_sec = 0", "greater than or equal to 1"]),
        ("[agent]\ntimeout_sec = '60'", ["timeout_sec = '60'", "valid integer"]),
        ("[agent]\ntimeout_sec = true", ["timeout_sec", "valid integer"]),
        ("[agent]\ntimeout_sec = 1.5", ["timeout_sec", "valid integer"]),
        ("[agent]\ngrace_sec = nan", ["grace_sec"]),
        ("[scorer]\ntask_timeout_sec = inf", ["task_timeout_sec", "finite"]),
        ("[scorer.environment]\ngpus = -1", ["gpus = -1"]),
        ("[agent.environment]\nnetwork_mode = 'none'", ["network_mode", "'default' or 'no-network'"]),
        ("[agent.environment]\ngpus = '0;1'", ["gpus", "joined by commas"]),
        ("[agent.mine]\ncommand = []", ["[agent.mine]", "command"]),
        ("[agent.mine]\ncommand = 'sh -c x'", ["[agent.mine]", "command", "tuple"]),
        ("[agent.mine]\ncommand = ['a', 1]", ["[agent.mine]", "command, item 2 = 1", "valid string"]),
        ("[agent.'a/b']\ncommand = ['x']", ["[agent.a/b]", "name"]),
        ("[agent.mine]\ncommand = ['x']\nsession_dir = '../up'", ["session_dir", "below the agent's home"]),
        ("[agent.mine]\ncommand = ['x']\nsession_dir = '/abs'", ["session_dir", "below the agent's home"]),
        ("[agent.mine]\ncommand = ['x']\nstdin = 'open'", ["stdin", "'closed' or 'task'"]),
        ("[agent.mine]\ncommand = ['x']\n[agent.mine.env]\n'A-B' = 'x'", ["'A-B'", "environment variable"]),
        ("[agent.mine]\ncommand = ['x']\n[agent.mine.env]\nA = 1", ["valid string"]),
        ("[agent.claude]\ncommand = ['x']", ["[agent.claude]", "built in", "another name"]),
        ("[agent.codex]\ncredential = 'gpt.json'", ["[agent.codex]", "needs 'container'"]),
        ("[agent]\ncommand = ['x']", ["[agent]", "unknown key 'command'"]),
        ("agent = 3", ["agent", "dictionary"]),
        ("backend = ", ["not valid TOML"]),
        ("a = 1\na = 2", ["not valid TOML"]),
    ],
)  # fmt: skip
def test_faults_in_a_runtime_file(tmp_path: Path, text: str, parts: list[str]) -> None:
    line = runtime_error(tmp_path, text)
    for part in parts:
        assert part in line


def test_a_runtime_file_that_is_missing_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_runtime(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"x = '\xff'")
    with pytest.raises(UserError, match="no UTF-8"):
        load_runtime(tmp_path / "latin.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    # A file that nobody can open, root included; mode bits would not stop root.
    for path, part in (
        (tmp_path, "is a directory"),
        (tmp_path / "loop.toml", "(too many levels of symbolic"),
    ):
        with pytest.raises(UserError) as caught:
            load_runtime(path)
        line = caught.value.line()
        assert part in line
        assert "Errno" not in line
        assert line.count(str(path)) == 1
        assert ". Next: " in line


def test_an_image_is_asked_for_only_where_containers_run(tmp_path: Path) -> None:
    path = tmp_path / "runtime.toml"
    path.write_text("backend = 'docker'", encoding="utf-8")
    runtime = load_runtime(path)
    assert runtime.image(runtime.file.agent.image, "agent") == "4dcb/agent:dev"
    assert runtime.image(runtime.file.scorer.image, "scorer") == "4dcb/scorer:dev"
    path.write_text("backend = 'sif'", encoding="utf-8")
    runtime = load_runtime(path)
    with pytest.raises(UserError, match=r"\[agent.image\]: key 'sif' is missing"):
        runtime.image(runtime.file.agent.image, "agent")
    path.write_text("backend = 'host'", encoding="utf-8")
    runtime = load_runtime(path)
    assert runtime.image(runtime.file.agent.image, "agent") == ""


def test_paths_resolve_from_where_the_user_stands_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.toml").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert find_file("here.toml") == tmp_path / "here.toml"
    template = "harness/runtime/templates/runtime.example.toml"
    assert find_file(template) == REPOSITORY / template
    assert find_file("nowhere.toml") == tmp_path / "nowhere.toml"


def test_jobs_expand_to_runs_in_order(lab: Lab) -> None:
    lab.jobs({"case": "clip"}, {"case": "synthetic/B_01", "trial": 7}, trials=2)
    jobs = load_jobs(lab.jobs_path, lab.cases)
    assert [str(key.path) for key in jobs.keys] == [
        "real/clip/tester-m-none/1",
        "real/clip/tester-m-none/2",
        "synthetic/B_01/tester-m-none/7",
    ]
    assert jobs.cases == ("real/clip", "synthetic/B_01")


def test_a_model_name_adds_no_level_to_the_tree(lab: Lab) -> None:
    lab.jobs({"model": "org/../model x"})
    (key,) = load_jobs(lab.jobs_path, lab.cases).keys
    assert str(key.path) == "synthetic/B_01/tester-org%2F..%2Fmodel%20x-none/1"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["holds no [[job]]"]),
        ("trials = 3", ["holds no [[job]]"]),
        ("job = []", ["holds no [[job]]"]),
        (JOB.replace("effort", "efort"), ["[[job]] number 1: unknown key 'efort'", "did you mean 'effort'"]),
        (JOB + JOB.replace('"none"', "3"), ["[[job]] number 2: effort = 3", "valid string"]),
        ("job = [1]", ["top level: job, item 1 = 1"]),
        (JOB + "trial = 1000000000", ["[[job]] number 1: trial = 1000000000", "999999999"]),
        ("trials = 100000000\n" + JOB, ["top level: trials = 100000000", "less than or equal to 10000"]),
        ("trials = 10000\n" + 101 * JOB, ["asks for 1010000 runs", f"at most {MOST_RUNS}", "lower trials"]),
        (JOB.replace('"m"', f'"{400 * "m"}"'), ["number 1", "directory of 407", "at most 200", "model"]),
        (JOB.replace('"a"', f'"{400 * "a"}"'), ["at most 200", "shorten agent"]),
        (JOB.replace('"none"', f'"{67 * "ü"}"'), ["directory of 406", "three a byte", "shorten effort"]),
        (JOB.replace("B_01", 400 * "c"), ["case of 400 characters", "at most 200"]),
        (JOB.replace("B_01", "real/" + 201 * "c"), ["case of 201 characters"]),
        (JOB + "trail = 2", ["'trail'", "did you mean 'trial'"]),
        ("trial = 2\n" + JOB, ["top level", "'trial'", "did you mean 'trials'"]),
        ("[[jobs]]\ncase = 'x'", ["'jobs'", "did you mean 'job'"]),
        (JOB.replace('model = "m"\n', ""), ["'model' is missing"]),
        (JOB.replace('"m"', '""'), ["model", "at least 1 character"]),
        (JOB + "trial = 0", ["trial = 0"]),
        (JOB + "trial = true", ["trial", "valid integer"]),
        ("trials = 0\n" + JOB, ["trials = 0"]),
        (JOB.replace("B_01", "B_02"), ["'B_02' does not exist", "did you mean 'B_01'"]),
        (JOB.replace("B_01", "real/B_01"), ["'real/B_01' does not exist"]),
        (JOB.replace("B_01", "reel/B_01"), ["'reel' is no kind"]),
        (JOB.replace("B_01", "../cases/synthetic/B_01"), ["no case name"]),
        (JOB.replace("B_01", "synthetic/../B_01"), ["no case name"]),
        (JOB.replace("B_01", "synthetic/.."), ["no case name"]),
        (JOB.replace("B_01", ".."), ["no case name"]),
        (JOB.replace("B_01", "synthetic/"), ["no case name"]),
        (JOB.replace("B_01", "/etc"), ["no case name"]),
        (JOB + JOB, ["number 2", "number 1 asks for already"]),
        (JOB + JOB.replace("B_01", "synthetic/B_01"), ["number 2", "number 1 asks for already"]),
        (JOB + JOB.replace("effort", "trial = 1\neffort"), ["number 1 asks for already"]),
        (JOB.replace('"a"', '"a-m"').replace('"m"', '"x"') + JOB.replace('"m"', '"m-x"'),
        ["asks for already"]),
    ],
)  # fmt: skip
def test_faults_in_a_jobs_file(lab: Lab, text: str, parts: list[str]) -> None:
    line = jobs_error(lab, text)
    for part in parts:
        assert part in line


def test_the_longest_names_that_are_allowed_become_directories(tmp_path: Path) -> None:
    case = f"real/{200 * 'c'}"
    lab = Lab(tmp_path, (case,))
    lab.runtime(lab.shell_agent("true"))
    lab.jobs({"case": case, "model": 188 * "m", "trial": 999_999_999})
    assert lab.infer().returncode == 1
    (place,) = lab.runs.glob("*/*/*/999999999")
    assert len(place.parent.name) == 200
    assert (place / "run.json").is_file()


def test_a_case_under_both_kinds_must_name_its_kind(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ("real/twin", "synthetic/twin"))
    assert "exists under real and synthetic" in jobs_error(lab, JOB.replace("B_01", "twin"))
    lab.jobs({"case": "real/twin"})
    assert load_jobs(lab.jobs_path, lab.cases).cases == ("real/twin",)


def test_variables_are_split_into_plain_ones_and_secrets(tmp_path: Path) -> None:
    env = {"URL": "http://x", "API_KEY": "k", "HF_TOKEN": "t", "DB_PASSWORD": "p", "FROM_OUTSIDE": "${OUTER}"}
    plain, secrets = expand_env(env, "agent.x.env", tmp_path, {"OUTER": "value"})
    assert plain == {"URL": "http://x"}
    assert secrets == {"API_KEY": "k", "HF_TOKEN": "t", "DB_PASSWORD": "p", "FROM_OUTSIDE": "value"}
    with pytest.raises(UserError, match=r"refers to \$\{OUTER\}, which is not set"):
        expand_env(env, "agent.x.env", tmp_path, {})
    with pytest.raises(UserError, match="in the middle of a value"):
        expand_env({"HEADER": "Bearer ${OUTER}"}, "agent.x.env", tmp_path, {"OUTER": "value"})
