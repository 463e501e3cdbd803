#!/usr/bin/env bash
# Compile scorer/vdb.cpp, the helper through which the scorer uses OpenVDB (liquids without identity need it).
#
#   scripts/build_vdb.sh            into the bin directory of the environment: $FOURDCB_VENV, .venv or $CONDA_PREFIX
#   scripts/build_vdb.sh PATH       to PATH
#
# Needs a C++17 compiler ($CXX, default g++) and OpenVDB's headers: of $CONDA_PREFIX when it has them, else the
# system's (Debian, Ubuntu: apt-get install g++ libopenvdb-dev libboost-dev).
set -euo pipefail
PACKAGES="libopenvdb-dev libboost-dev libtbb-dev libimath-dev"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
    echo "error: $*" >&2
    exit 2
}

install_to() {
    local venv="${FOURDCB_VENV:-$PWD/.venv}"
    if [ -d "$venv/bin" ]; then
        echo "$venv/bin/scorer-vdb"
    elif [ -n "${CONDA_PREFIX:-}" ]; then
        echo "$CONDA_PREFIX/bin/scorer-vdb"
    else
        return 1
    fi
}

[ $# -le 1 ] || fail "too many arguments. Next: scripts/build_vdb.sh [PATH]"
output="${1:-$(install_to)}" || fail "no environment to install to. Next: scripts/build_vdb.sh PATH"
compiler="${CXX:-g++}"
command -v "$compiler" >/dev/null || fail "no C++ compiler ($compiler) found. Next: apt-get install g++"

flags=()
if [ -n "${CONDA_PREFIX:-}" ] && [ -e "$CONDA_PREFIX/include/openvdb/openvdb.h" ]; then
    flags=(-I"$CONDA_PREFIX/include" -L"$CONDA_PREFIX/lib" -Wl,-rpath,"$CONDA_PREFIX/lib")
elif ! "$compiler" -std=c++17 -fsyntax-only -x c++ - <<<'#include <openvdb/version.h>' 2>/dev/null; then
    fail "OpenVDB's headers are not installed. Next: apt-get install $PACKAGES"
fi

mkdir -p "$(dirname "$output")"
# Beside the destination and renamed at the end: a scorer that runs meanwhile never meets half a program.
staged="$(mktemp "$(dirname "$output")/.scorer-vdb.XXXXXX")"
trap 'rm -f "$staged"' EXIT

# OpenVDB may have been built with Imath's half floats, and then its headers call them.
imath=()
for name in Imath-3_2 Imath-3_1 Imath; do
    if "$compiler" -x c++ - -o "$staged" "${flags[@]}" "-l$name" <<<'int main() {}' 2>/dev/null; then
        imath=(-Wl,--as-needed "-l$name")
        break
    fi
done

"$compiler" -std=c++17 -O2 -DNDEBUG -w -o "$staged" scorer/vdb.cpp "${flags[@]}" -lopenvdb -ltbb "${imath[@]}" ||
    fail "scorer/vdb.cpp could not be compiled (see above). Next: apt-get install $PACKAGES"
chmod 755 "$staged"
mv -f "$staged" "$output"
trap - EXIT
echo "$output"
