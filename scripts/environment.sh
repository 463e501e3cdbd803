# Sourced by demo.sh and test.sh: one virtual environment in the checkout, installed once.
#
# ensure_environment EXTRA   makes .venv (or takes $FOURDCB_VENV), installs the package with that extra unless this
#                            pyproject.toml is installed already, and sets PYTHON. Needs the network the first time only.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${FOURDCB_VENV:-$ROOT/.venv}"

fail() {
    echo "error: $*" >&2
    exit 2
}

# A Python that is new enough, without trusting that "python3" is.
find_python() {
    local candidate
    for candidate in "${FOURDCB_PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

ensure_environment() {
    local extra="$1" base stamp wanted
    if [ ! -x "$VENV/bin/python" ]; then
        base="$(find_python)" || fail "no Python 3.11 or newer found. Next: install one, or set FOURDCB_PYTHON"
        echo "making a virtual environment in $VENV"
        "$base" -m venv "$VENV" || fail "could not make a virtual environment. Next: apt-get install python3-venv"
    fi
    PYTHON="$VENV/bin/python"
    stamp="$VENV/.fourdcodebench-$extra"
    wanted="$("$PYTHON" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' \
        "$ROOT/pyproject.toml") $ROOT"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing fourdcodebench[$extra] (once; needs the network)"
        "$PYTHON" -m pip install --quiet --disable-pip-version-check -e "$ROOT[$extra]" ||
            fail "the installation failed. Next: check the network and run this again"
        echo "$wanted" >"$stamp"
    fi
    export PATH="$VENV/bin:$PATH"
}

# PyTorch's own index for the CPU where it can be reached; else the index that pip is set up for must have such a build:
# PyPI's torch for Linux brings gigabytes of CUDA libraries.
torch_index() {
    local index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"
    [ "$index" != none ] || return 0
    if "$PYTHON" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$index/" 2>/dev/null; then
        printf -- '--index-url %s' "$index"
    fi
}

ensure_models() {
    local stamp="$VENV/.fourdcodebench-models" folder="$ROOT/harness/scorer" wanted index
    wanted="$(cat "$folder"/requirements-torch.txt "$folder"/requirements-models.txt | cksum)"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "installing PyTorch for the CPU and the packages of the learned estimators (once; needs the network)"
        index="$(torch_index)"
        pip_install() { "$PYTHON" -m pip install --quiet --disable-pip-version-check "$@"; }
        # Without dependencies: from an index without CPU builds of its own, torchvision would replace torch.
        # shellcheck disable=SC2046,SC2086
        pip_install $index $(grep -E '^torch==' "$folder/requirements-torch.txt") &&
            pip_install $index --no-deps $(grep -E '^torchvision==' "$folder/requirements-torch.txt") &&
            pip_install --no-deps $(grep -E '^timm==' "$folder/requirements-models.txt") &&
            pip_install $(grep -E '^[a-z]' "$folder/requirements-models.txt" | grep -v '^timm==') ||
            fail "the installation failed. Next: check the network and run this again"
        echo "$wanted" >"$stamp"
    fi
}

ensure_stirrup() {
    local stirrup wanted candidate base="" requirements="$ROOT/harness/agent/requirements-clis.txt"
    stirrup="$(dirname "$VENV")/.venv-stirrup"
    wanted="$(cksum <"$requirements")"
    [ "$(cat "$stirrup/.stamp" 2>/dev/null)" != "$wanted" ] || return 0
    for candidate in "${FOURDCB_PYTHON312:-}" "$PYTHON" python3.12 python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[23]*/bin/python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            base="$candidate"
            break
        fi
    done
    if [ -z "$base" ]; then
        echo "no Python 3.12 was found: the tests of harness/stirrup will be skipped (FOURDCB_PYTHON312 names one)"
        return 0
    fi
    echo "making an environment with stirrup in $stirrup (once; needs the network)"
    "$base" -m venv --clear "$stirrup" &&
        "$stirrup/bin/python" -m pip install --quiet --disable-pip-version-check \
            $(sed -n 's/^\(stirrup\|lxml_html_clean\)\(==[^;]*\).*/\1\2/p' "$requirements") ||
        fail "the installation failed. Next: check the network and run this again"
    echo "$wanted" >"$stirrup/.stamp"
}
