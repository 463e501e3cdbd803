#!/usr/bin/env bash
# Every check of the project: format, lint, types, tests. Installs and starts what it needs (as root: a Docker engine).
#
#   scripts/test.sh                 everything
#   scripts/test.sh -k raster       arguments go to pytest
#
# Without root and without an engine the engine tests are skipped by name; with CI=true a missing engine is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/environment.sh

ensure_environment test

echo "== ruff"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
echo "== mypy"
"$PYTHON" -m mypy

echo "== engines"
started=0
if [ -z "${DOCKER_HOST:-}" ] && settings="$(scripts/engines.sh start)"; then
    eval "$settings"
    started=1
fi
stop_engines() { [ "$started" = 0 ] || scripts/engines.sh stop || true; }
trap stop_engines EXIT

echo "== pytest"
"$PYTHON" -m pytest "$@"
