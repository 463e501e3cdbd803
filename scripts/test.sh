#!/usr/bin/env bash
# Every check of the project: format, lint, types, tests. Installs and starts what it needs (as root: a Docker engine, SLURM,
# Apptainer).
#
#   scripts/test.sh                 everything
#   scripts/test.sh -k raster       arguments go to pytest
#
# Without root and without an engine the engine tests are skipped by name; with CI=true a missing engine is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

ensure_environment test
ensure_models
ensure_stirrup

echo "== ruff"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
echo "== mypy"
"$PYTHON" -m mypy

echo "== scorer-vdb"
# A compiler and OpenVDB make the helper that reads liquid caches.
if [ ! -e /usr/include/openvdb/openvdb.h ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        g++ libopenvdb-dev libboost-dev libtbb-dev libimath-dev >/dev/null
fi
helper="$VENV/bin/scorer-vdb"
if [ ! -x "$helper" ] || [ scorer/vdb.cpp -nt "$helper" ]; then
    scripts/build_vdb.sh "$helper" || echo "scorer-vdb was not built: tests of liquids will be skipped (in CI they fail)"
fi

echo "== engines"
started=0
if [ -z "${DOCKER_HOST:-}" ] && settings="$(scripts/engines.sh start)"; then
    eval "$settings"
    started=1
fi
scripts/engines.sh apptainer || echo "no Apptainer: its tests will be skipped (in CI they fail)"
stop_engines() { [ "$started" = 0 ] || scripts/engines.sh stop || true; }
trap stop_engines EXIT

echo "== chromium"
# The viewer's pages are tested in a real browser.
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } ||
        echo "no Chromium: its tests will be skipped (in CI they fail)"
fi

echo "== pytest"
# Two workers: the suite's tests start processes and containers of their own, and wait a lot.
"$PYTHON" -m pytest -n "${PYTEST_WORKERS:-2}" --dist loadgroup "$@"
