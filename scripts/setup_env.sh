#!/usr/bin/env bash
# Installs what the stages prepare, score and viz need into the active environment, without containers.
#
#   conda env create -f environment.yml && conda activate 4dcodebench && scripts/setup_env.sh
#       everything, for the GPUs of this machine (others: TORCH_CUDA_ARCH_LIST="8.0;9.0")
#   scripts/setup_env.sh --cpu
#       no GPU: into the active conda or virtual environment, else into .venv of the checkout
#
# Packages and versions: harness/scorer/requirements*.txt. Also compiles scorer-vdb where OpenVDB's headers are. May be
# run again; what is there is left alone. --cpu leaves out what only CUDA can build, and so the groups tracks and moge
# (their packages come from source only; see docs/checkpoints.md).
#
# TORCH_INDEX names another index for PyTorch; "none" takes the one that pip is set up for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh
requirements=harness/scorer

variant=cuda
for option in "$@"; do
    case "$option" in
    --cpu) variant=cpu ;;
    -h | --help)
        sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    *) fail "unknown option $option. Next: scripts/setup_env.sh --help" ;;
    esac
done

if [ "$variant" = cuda ]; then
    [ -n "${CONDA_PREFIX:-}" ] || {
        echo "error: no conda environment is active. Next: conda env create -f environment.yml," \
            "conda activate 4dcodebench, then this again (or --cpu)" >&2
        exit 1
    }
    command -v uv >/dev/null || fail "uv is not in the environment. Next: conda env update -f environment.yml"
    PYTHON="$CONDA_PREFIX/bin/python"
    install() { uv pip install --python "$PYTHON" "$@"; }
    say() { printf '== %s\n' "$*"; }

    say "PyTorch with CUDA 13"
    install --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cu130}" -r "$requirements/requirements-torch.txt"
    say "packages"
    install -r "$requirements/requirements.txt" -r "$requirements/requirements-models.txt" setuptools wheel ninja
    say "CUDA extensions (this compiles for some minutes)"
    FORCE_CUDA=1 CUDA_HOME="$CONDA_PREFIX" install --no-build-isolation -r "$requirements/requirements-cuda.txt"
    install --no-deps -r "$requirements/requirements-nodeps.txt"
    install --no-deps -e .
    say "scorer-vdb"
    scripts/build_vdb.sh "$CONDA_PREFIX/bin/scorer-vdb"
    "$PYTHON" -c "import torch, nvdiffrast.torch, torchvision, transformers; assert torch.version.cuda.startswith('13.')"
    echo "ready: python -m scorer.prepare, python -m scorer"
else
    active="${FOURDCB_VENV:-${VIRTUAL_ENV:-${CONDA_PREFIX:-$ROOT/.venv}}}"
    VENV="$active"
    ensure_environment score
    ensure_models
    scripts/build_vdb.sh "$VENV/bin/scorer-vdb" ||
        echo "scorer-vdb was not built: liquids without identity cannot be scored until it is"
    echo "ready in $VENV: python -m scorer.prepare, python -m scorer"
fi
