"""What the launcher adds to a run: ``python benchmarks/launcher.py``.

Runs an agent that delivers at once many times on the host backend, one at a time and several at a time, and
beside it, in the same run, the bare command as often. Prints JSON: seconds of wall clock and of processor per
run (launcher, wardens and agents together), and the same for the bare command.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPT = "mkdir -p world solution && echo made > world/a && echo > solution/build.sh"


def box(kind: bytes, body: bytes) -> bytes:
    return (8 + len(body)).to_bytes(4) + kind + body


def trees(root: Path, runs: int, parallel: int) -> list[str]:
    """One case and the two files; returns the launcher's command line."""
    case = root / "cases/synthetic/bench"
    case.mkdir(parents=True, exist_ok=True)
    video = box(b"ftyp", b"isom\0\0\0\0") + box(b"moov", b"x" * 24) + box(b"mdat", b"y" * 64)
    (case / "reference.mp4").write_bytes(video)
    runtime, jobs = root / "runtime.toml", root / "jobs.toml"
    runtime.write_text(
        f'cases_root = "{root}/cases"\nruns_root = "{root}/runs-{runs}-{parallel}"\n'
        f"[agent]\nparallel = {parallel}\nmin_free_gb = 0\n[agent.environment]\ngpus = 'none'\n"
        f"[agent.bench]\ncommand = {json.dumps(['sh', '-c', SCRIPT])}\n",
        encoding="utf-8",
    )
    jobs.write_text(
        f'trials = {runs}\n[[job]]\ncase = "bench"\nagent = "bench"\nmodel = "m"\neffort = "e"\n',
        encoding="utf-8",
    )
    program = REPOSITORY / "harness/runtime/infer.py"
    return [sys.executable, str(program), "--jobs", str(jobs), "--runtime", str(runtime), "--json"]


def processor() -> float:
    """Seconds of processor of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(command: list[str]) -> dict[str, float]:
    """Wall clock and processor time of a command that must succeed."""
    wall, cpu = time.perf_counter(), processor()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    return {"wall_s": time.perf_counter() - wall, "processor_s": processor() - cpu}


def per_run(many: dict[str, float], one: dict[str, float], runs: int) -> dict[str, float]:
    """What each further run costs: start-up and imports, paid once for a batch, are taken off."""
    return {name: round((many[name] - one[name]) / (runs - 1), 4) for name in many}


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--runs", type=int, default=100)
    options.add_argument("--parallel", type=int, default=4)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="4dcb-bench-") as folder:
        root = Path(folder)
        start = measured(trees(root, 1, 1))
        one_at_a_time = measured(trees(root, given.runs, 1))
        several = measured(trees(root, given.runs, given.parallel))
        wall, cpu = time.perf_counter(), processor()
        for number in range(given.runs):
            place = root / f"bare-{number}"
            place.mkdir()
            subprocess.run(["sh", "-c", SCRIPT], cwd=place, check=True)
        bare = {"wall_s": time.perf_counter() - wall, "processor_s": processor() - cpu}
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}",
        "runs": given.runs,
        "first_run_with_imports": {name: round(value, 3) for name, value in start.items()},
        "each_further_run": per_run(one_at_a_time, start, given.runs),
        f"each_further_run_{given.parallel}_at_a_time": per_run(several, start, given.runs),
        "bare_command": {name: round(value / given.runs, 4) for name, value in bare.items()},
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
