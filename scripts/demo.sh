#!/usr/bin/env bash
# From a fresh clone to scored reconstructions: makes small cases, lets the baseline agent reconstruct them, checks and
# scores the results. Needs no Docker, GPU, weights or data; the network only for the first installation.
#
#   scripts/demo.sh            again and again: finished work is kept
#   scripts/demo.sh --fresh    does everything anew
#   scripts/demo.sh --all      every metric that needs no missing model; the ones that follow paths take some minutes more
#   scripts/demo.sh --docker   agent and scorer in containers (a Docker engine; images by scripts/build_images.sh --cpu)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

fresh=()
runtime=scripts/demo/runtime.toml
runs=runs
types=(--type dynamic_iou,scene_3d,interpenetration,mesh)
for option in "$@"; do
    case "$option" in
    --fresh) fresh=(--redo) ;;
    --all) types=(--allow-missing-models) ;;
    --docker)
        runtime=scripts/demo/runtime.docker.toml
        runs=.local/demo-docker/runs
        ;;
    -h | --help)
        sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) fail "unknown option $option. Next: scripts/demo.sh --help" ;;
    esac
done

jobs=scripts/demo/jobs.toml
step() { printf '\n\033[1m[%s/5] %s\033[0m\n' "$1" "$2"; }

step 1 "Environment"
ensure_environment score
echo "Python $("$PYTHON" -c 'import platform; print(platform.python_version())') in $VENV"

step 2 "Cases: small simulations with a reference world and a video each, and one clip with a mask"
"$PYTHON" scripts/make_demo_case.py ${fresh[@]:+--force}

step 3 "Inference: the baseline agent watches each video and writes a 4D world"
"$PYTHON" harness/runtime/infer.py --jobs "$jobs" --runtime "$runtime" "${fresh[@]}"

step 4 "Checker: is every delivered world well formed?"
for case in synthetic/demo_rigid synthetic/demo_cloth synthetic/demo_grains synthetic/demo_jelly real/demo_clip; do
    "$PYTHON" -m checker --workspace "$runs/$case/baseline-background-low/1/workspace" --video "cases/$case/reference.mp4"
done

step 5 "Scoring: compare the worlds with the references"
"$PYTHON" harness/runtime/score.py --jobs "$jobs" --runtime "$runtime" "${types[@]}" "${fresh[@]}"

cat <<END

Where everything lies:
  cases/<kind>/<case>/reference.mp4                                    the video that the agent saw
  data/synthetic/<case>/world/                                         the reference world it did not see
  $runs/<kind>/<case>/baseline-background-low/1/workspace/world/        its reconstruction, render.mp4 among it
  $runs/<kind>/<case>/baseline-background-low/1/workspace/solution/     the program that makes it
  $runs/<kind>/<case>/baseline-background-low/1/run.json                what happened
  $runs/<kind>/<case>/baseline-background-low/1/results/reward.json     the scores
Next: the other metrics with  scripts/demo.sh --all ; averages with  python -m scorer.report ; a video of your own with
scripts/add_case.py VIDEO  (README, "Your own video")
To see it all: pip install -e '.[viewer]' && python viewer/server.py --runs $runs , then http://127.0.0.1:8130/
END
