#!/usr/bin/env bash
# Builds the container images from the repository's own build files.
#
#   scripts/build_images.sh                      all three, with CUDA (tens of GB; no GPU needed to build)
#   scripts/build_images.sh --cpu --base IMAGE   agent and scorer for a machine without a GPU, on any Debian or Ubuntu
#                                                image with Python 3.11 or newer (default: debian:bookworm-slim)
#   --only agent|scorer|base    just that one          --clis     agent CLIs in the CPU image as well
#   --models                    the learned models' packages in the CPU image of the scorer as well
#   --tag TAG                   instead of dev
#   --sif                       also makes image files for Apptainer: 4dcb-agent-dev.sif, 4dcb-scorer-dev.sif in the
#                               repository's root (elsewhere: --sif-dir DIR)
#   --if-changed                skip an image that was built from the same files
#   --network MODE              network of the build steps (host where the default one has no way out)
#
# Behind a proxy with a certificate authority of its own: CA_BUNDLE=/path/to/ca.crt. Another package index:
# PIP_CONF=/path/to/pip.conf. Neither ends up in an image. Another index for PyTorch (--models): TORCH_INDEX, "none" for
# the one that pip is set up for. Arguments of mksquashfs (--sif): MKSQUASHFS_ARGS. Tarballs that the build files fetch
# are compared with PYTHON_SHA256, BLENDER_SHA256, BLENDER_DOCS_SHA256, OPENVDB_SHA256 where these are set.
set -euo pipefail
cd "$(dirname "$0")/.."

variant=cuda base= only= clis= models= if_changed= network= tag=dev sif= sif_dir=$PWD
while [ $# -gt 0 ]; do
    case "$1" in
        --cpu) variant=cpu ;;
        --base) base="$2"; shift ;;
        --only) only="$2"; shift ;;
        --clis) clis=yes ;;
        --models) models=yes ;;
        --tag) tag="$2"; shift ;;
        --sif) sif=yes ;;
        --sif-dir) sif=yes sif_dir="$(realpath -m -- "$2")"; shift ;;
        --if-changed) if_changed=yes ;;
        --network) network="$2"; shift ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) echo "error: unknown option $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done
[ "$variant" = cpu ] || clis=yes models=yes
case "$only" in "" | agent | scorer | base) ;; *) echo "error: --only takes agent, scorer or base" >&2; exit 2 ;; esac
[ "$variant" = cuda ] || base="${base:-debian:bookworm-slim}"

# The build files need BuildKit: buildx in today's command line, built into those before 23.
find_docker() {
    local program version
    while read -r program; do
        if "$program" buildx version > /dev/null 2>&1; then
            echo "$program"; return
        fi
        version="$("$program" --version 2> /dev/null | sed -n 's/[^0-9]*\([0-9]*\).*/\1/p')"
        if [ -n "$version" ] && [ "$version" -lt 23 ]; then
            echo "$program"; return
        fi
    done < <(type -ap docker)
    echo "error: no docker command line with BuildKit was found. Next: install docker-buildx (or docker-buildx-plugin)" >&2
    exit 2
}
docker="$(find_docker)"
apptainer="$(command -v apptainer || command -v singularity || true)"
if [ -n "$sif" ] && [ -z "$apptainer" ]; then
    echo "error: --sif needs Apptainer or SingularityCE, and neither was found. Next: install apptainer" >&2
    exit 2
fi
export DOCKER_BUILDKIT=1

commit="$(git rev-parse --short=12 HEAD 2> /dev/null || echo unknown)"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"

base_of() { # name
    if [ -n "$base" ]; then
        echo "$base"
    elif [ "$1" = agent ]; then
        echo "4dcb/sim-base:$tag"
    fi
}

# One sum over everything that goes into an image: its copied files, build file, base and options.
inputs_of() { # name, folders
    local name="$1" from option=
    shift
    from="$(base_of "$name")"
    case "$name" in agent) option="$clis" ;; scorer) option="$models" ;; esac
    {
        echo "$variant $option $("$docker" image inspect -f '{{.Id}}' "$from" 2> /dev/null || echo "$from")"
        find "harness/$name" "$@" LICENSE .dockerignore scripts/image_selftest.py -type f ! -path '*/__pycache__/*' -print0 \
            | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c1-32
}

label() { # image, key
    "$docker" image inspect -f "{{index .Config.Labels \"org.4dcodebench.$2\"}}" "$1" 2> /dev/null || true
}

build() { # name, image, folders that the image copies
    local name="$1" image="$2" inputs
    shift 2
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    inputs="$(inputs_of "$name" "$@")"
    if [ -n "$if_changed" ] && [ "$(label "$image" inputs)" = "$inputs" ]; then
        echo "$image is up to date"
        return 0
    fi
    if [ "$variant" = cpu ] && [ "$(label "$image" variant)" = cuda ]; then
        echo "error: $image is the GPU variant. Next: give another --tag, or remove it with: docker rmi $image" >&2
        exit 2
    fi
    local from setting options=(--build-arg "VERSION=$version" --build-arg "COMMIT=$commit" --build-arg "INPUTS=$inputs")
    if [ "$name" != base ]; then options+=(--build-arg "VARIANT=$variant"); fi
    from="$(base_of "$name")"
    if [ -n "$from" ]; then options+=(--build-arg "BASE_IMAGE=$from"); fi
    if [ "$name" = agent ]; then options+=(--build-arg "AGENT_CLIS=${clis:-no}"); fi
    if [ "$name" = scorer ]; then options+=(--build-arg "MODELS=${models:-no}"); fi
    for setting in $(sed -n 's/^ARG \([A-Z_]*_SHA256\|TORCH_INDEX\)=.*/\1/p' "harness/$name/Dockerfile"); do
        if [ -n "${!setting:-}" ]; then options+=(--build-arg "$setting=${!setting}"); fi
    done
    if [ -n "$network" ]; then options+=(--network "$network"); fi
    if [ -n "${CA_BUNDLE:-}" ]; then options+=(--secret "id=ca_bundle,src=$CA_BUNDLE"); fi
    if [ -n "${PIP_CONF:-}" ]; then options+=(--secret "id=pip_conf,src=$PIP_CONF"); fi
    echo "building $image ($variant)"
    "$docker" build -t "$image" -f "harness/$name/Dockerfile" "${options[@]}" .
}

# The engine is asked for the image where DOCKER_HOST says; the file takes its place when it is whole.
convert() { # name, image
    local name="$1" image="$2" file="$sif_dir/4dcb-$1-$tag.sif" wanted arguments=()
    [ -n "$sif" ] || return 0
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    wanted="$("$docker" image inspect -f '{{.Id}}' "$image")"
    if [ -n "$if_changed" ] && [ -f "$file" ] && [ "$(cat "$file.from" 2> /dev/null)" = "$wanted" ]; then
        echo "$file is up to date"
        return 0
    fi
    if [ -n "${MKSQUASHFS_ARGS:-}" ]; then arguments=(--mksquashfs-args "$MKSQUASHFS_ARGS"); fi
    echo "making $file"
    mkdir -p "$sif_dir"
    rm -f "$file.from"
    "$apptainer" build --disable-cache "${arguments[@]}" "$file.part.$$" "docker-daemon:$image" || { rm -f "$file.part.$$"; exit 1; }
    mv "$file.part.$$" "$file"
    echo "$wanted" > "$file.from"
}

if [ "$variant" = cuda ]; then
    build base "4dcb/sim-base:$tag"
fi
build agent "4dcb/agent:$tag" contract world checker harness/__init__.py harness/baseline
build scorer "4dcb/scorer:$tag" contract world report scorer scripts/build_vdb.sh harness/base/verify_gpu.py
convert agent "4dcb/agent:$tag"
convert scorer "4dcb/scorer:$tag"
