#!/usr/bin/env bash
# A Docker engine, Apptainer and SLURM for the tests, on a machine that has none.
#
#   scripts/engines.sh start [--for PID]   find or start an engine; prints "export DOCKER_HOST=…"
#                                          (--for: the engine that was started stops when process PID ends)
#   scripts/engines.sh base-image          make 4dcb/test-base:bookworm, a minimal Debian with python3
#   scripts/engines.sh apptainer           find or install Apptainer; prints its version
#   scripts/engines.sh base-sif            make the same minimal Debian as an image file; prints its path
#   scripts/engines.sh images              build 4dcb/agent:dev and 4dcb/scorer:dev for the CPU on it
#   scripts/engines.sh sif-images          the same two as image files for Apptainer; prints their folder
#   scripts/engines.sh cli-image           build 4dcb/agent:clis, the agent image with the agents' own programs
#   scripts/engines.sh slurm start [--for PID]   find or start a SLURM cluster of this machine; prints "export SLURM_CONF=…"
#   scripts/engines.sh slurm stop          stop the cluster that this script started
#   scripts/engines.sh status              exit 0 if an engine answers
#   scripts/engines.sh stop                stop the engine that this script started; images are kept for the next start
#   scripts/engines.sh purge               stop it and delete all that it kept
#
# An engine that already answers (DOCKER_HOST, else the default socket) is used as it is and never stopped. Otherwise, as
# root on Debian or Ubuntu, the packages docker.io, iptables and debootstrap are installed where they are missing, and an
# engine of its own is started: own socket, own data, in a scratch folder below TMPDIR. Nothing is pulled from a container
# registry; the base image comes from Debian's packages and is kept in ~/.cache/4dcodebench.
#
# An Apptainer or SingularityCE that is installed is used as it is. Otherwise, as root on Debian or Ubuntu, the host's own
# package is installed, or, where it has none, the one of Debian's newest suite: unpacked to /usr/bin, beside a C library of
# its own in /usr/local/lib/4dcb-apptainer that the rest of the system does not see.
#
# A SLURM cluster that answers is used as it is. Otherwise, as root on Debian or Ubuntu, slurm-wlm and munge are installed
# where they are missing, and munged, slurmctld and slurmd are started with everything of theirs in the scratch folder: one
# node with two processors and two devices that pass for GPUs.
#
# Exit status: 0 done; 1 failed; 2 usage; 3 no engine can be had here (reason on standard error): tests may be skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly UNAVAILABLE=3
readonly BASE_IMAGE=4dcb/test-base:bookworm
readonly SUITE=bookworm
key="$(printf %s "$PWD" | cksum | cut -d' ' -f1)"
scratch="${FDCB_ENGINE_DIR:-${TMPDIR:-/tmp}/4dcb-engine-$(id -u)-$key}"
cache="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/4dcodebench"
own="unix://$scratch/docker.sock"

say() { echo "[engines] $*" >&2; }
engine="Docker engine"
unavailable() { say "no $engine here: $*"; exit "$UNAVAILABLE"; }

answers() { # address, or empty for the default socket
    python3 - "$1" <<'PY' 2> /dev/null
import http.client, os, socket, sys, urllib.parse
url = urllib.parse.urlsplit(sys.argv[1] or "unix:///var/run/docker.sock")
if url.scheme == "unix":
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    connection.sock.connect(url.path)
elif url.scheme in ("tcp", "http"):
    connection = http.client.HTTPConnection(url.hostname, url.port or 2375, timeout=10)
else:
    sys.exit(1)
connection.request("GET", "/_ping")
sys.exit(connection.getresponse().status != 200)
PY
}

# The address of an engine that answers; fails when there is none.
find_engine() {
    if [ -n "${DOCKER_HOST:-}" ]; then
        answers "$DOCKER_HOST" && echo "$DOCKER_HOST"
    elif answers "$own"; then
        echo "$own"
    elif answers ""; then
        echo unix:///var/run/docker.sock
    else
        return 1
    fi
}

install_packages() { # names
    local missing=() package
    for package in "$@"; do
        dpkg -s "$package" > /dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    # A package that starts its own engine on installation is not wanted here, and cannot do so without an init system.
    local policy=/usr/sbin/policy-rc.d made=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod +x "$policy"
        made=yes
    fi
    local status=0
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
        > "$scratch/apt.log" 2>&1 || status=$?
    [ -z "$made" ] || rm -f "$policy"
    [ "$status" -eq 0 ] || { tail -n 5 "$scratch/apt.log" >&2; unavailable "installing ${missing[*]} failed"; }
}

start() {
    local watched="" found pid
    if [ "${1:-}" = --for ]; then watched="$2"; fi
    if found="$(find_engine)"; then
        echo "export DOCKER_HOST=$found"
        return 0
    fi
    # (An address of ours that was exported before the engine stopped means: start it again.)
    [ "${DOCKER_HOST:-$own}" = "$own" ] || unavailable "DOCKER_HOST is $DOCKER_HOST, and nothing answers there"
    [ "$(id -u)" -eq 0 ] || unavailable "none is running, and only root can start one (start Docker, or set DOCKER_HOST)"
    command -v apt-get > /dev/null && command -v dpkg > /dev/null \
        || unavailable "none is running, and it can be installed on Debian and Ubuntu only"
    install_packages docker.io iptables
    rm -f "$scratch/docker.pid" "$scratch/docker.sock"
    say "starting an engine in $scratch"
    setsid dockerd --host "$own" --data-root "$scratch/data" --exec-root "$scratch/exec" \
        --pidfile "$scratch/docker.pid" > "$scratch/dockerd.log" 2>&1 < /dev/null 9>&- &
    pid=$!
    local waited=0
    until answers "$own"; do
        kill -0 "$pid" 2> /dev/null || { tail -n 5 "$scratch/dockerd.log" >&2; unavailable "dockerd ended at once"; }
        [ "$waited" -lt 120 ] || { stop; unavailable "dockerd did not answer within 60 s (log: $scratch/dockerd.log)"; }
        sleep 0.5
        waited=$((waited + 1))
    done
    if [ -n "$watched" ]; then
        setsid "$PWD/scripts/engines.sh" stop-after "$watched" > /dev/null 2>&1 < /dev/null 9>&- &
    fi
    echo "export DOCKER_HOST=$own"
}

stop() {
    local pid waited=0
    pid="$(cat "$scratch/docker.pid" 2> /dev/null || true)"
    # A pid file that outlived its engine may name any process by now.
    if [ -n "$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -- "$scratch/docker.pid"; then
        kill "$pid" 2> /dev/null || true
        while kill -0 "$pid" 2> /dev/null; do
            [ "$waited" -lt 60 ] || { kill -9 "$pid" 2> /dev/null || true; break; }
            sleep 0.5
            waited=$((waited + 1))
        done
    fi
    rm -f "$scratch/docker.pid" "$scratch/docker.sock"
}

need_engine() {
    DOCKER_HOST="$(find_engine)" || unavailable "start one first: scripts/engines.sh start"
    export DOCKER_HOST
}

# The root file system of the base images, packed; made once.
base_tar() {
    local tar="$cache/test-base-$SUITE-$(dpkg --print-architecture).tar.gz" work
    if [ ! -f "$tar" ]; then
        [ "$(id -u)" -eq 0 ] || unavailable "the base image is missing, and only root can make it with debootstrap"
        install_packages debootstrap
        say "making the base image from Debian's packages"
        mkdir -p "$cache" "$scratch"
        work="$(mktemp -d "$scratch/rootfs.XXXXXX")"
        debootstrap --variant=minbase --include=python3 "$SUITE" "$work" > "$scratch/debootstrap.log" 2>&1 \
            || { tail -n 5 "$scratch/debootstrap.log" >&2; rm -rf "$work"; unavailable "debootstrap failed"; }
        rm -rf "$work"/var/cache/apt/archives/*.deb "$work"/var/lib/apt/lists/*
        tar -C "$work" --one-file-system -c . | gzip -1 > "$tar.$$"
        mv "$tar.$$" "$tar"
        rm -rf "$work"
    fi
    echo "$tar"
}

base_image() {
    need_engine
    if docker image inspect "$BASE_IMAGE" > /dev/null 2>&1; then
        return 0
    fi
    local tar
    tar="$(base_tar)"
    docker import "$tar" "$BASE_IMAGE" > /dev/null
}

find_apptainer() {
    local program
    for program in apptainer singularity; do
        if "$program" --version 2> /dev/null; then return 0; fi
    done
    return 1
}

install_apptainer() {
    engine=Apptainer
    if find_apptainer; then return 0; fi
    [ "$(id -u)" -eq 0 ] || unavailable "none is installed, and only root can install one"
    command -v apt-get > /dev/null && command -v dpkg > /dev/null \
        || unavailable "none is installed, and it can be installed on Debian and Ubuntu only"
    if apt-cache show apptainer > /dev/null 2>&1; then
        install_packages apptainer squashfs-tools squashfuse fuse-overlayfs
    else
        install_packages squashfs-tools squashfuse fuse-overlayfs patchelf
        unpack_apptainer
    fi
    configure_apptainer
    find_apptainer || unavailable "the installed program does not start"
}

# Debian's newest package beside the libraries that it was linked with, which are newer than this system's.
unpack_apptainer() {
    local debs="$cache/apptainer-$(dpkg --print-architecture)" lists="$scratch/newest" own=/usr/local/lib/4dcb-apptainer
    local options=(
        -o "Dir::Etc::SourceList=$lists.sources" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$lists" -o Acquire::Languages=none -o APT::Sandbox::User=root
    )
    if ! ls "$debs"/apptainer_*.deb > /dev/null 2>&1; then
        say "fetching Apptainer from Debian's newest suite"
        mkdir -p "$lists/partial" "$debs.part"
        newest_source "$lists.sources"
        { apt-get "${options[@]}" update -q \
            && (cd "$debs.part" && apt-get "${options[@]}" download apptainer libc6 libseccomp2 libsqlite3-0); } \
            > "$scratch/apt.log" 2>&1 || { tail -n 5 "$scratch/apt.log" >&2; unavailable "its package cannot be fetched"; }
        rm -rf "$debs" "$lists" "$lists.sources"
        mv "$debs.part" "$debs"
    fi
    say "unpacking Apptainer"
    local package library loader program
    for package in "$debs"/lib*.deb; do
        dpkg -x "$package" "$own"
    done
    dpkg -x "$debs"/apptainer_*.deb /
    library="$(dirname "$(find "$own/usr/lib" -name libc.so.6 -print -quit)")"
    for program in /usr/bin/apptainer /usr/lib/*/apptainer/bin/starter; do
        loader="$library/$(basename "$(patchelf --print-interpreter "$program")")"
        patchelf --set-interpreter "$loader" --set-rpath "$library" "$program"
    done
    for program in "$library"/libseccomp.so.2 "$library"/libsqlite3.so.0; do
        patchelf --set-rpath "$library" "$program"
    done
    [ -e /usr/bin/singularity ] || ln -s apptainer /usr/bin/singularity
}

# This host's own Debian source with the suite's name replaced.
newest_source() { # file
    local uri suite
    suite="$(. /etc/os-release && [ "$ID" = debian ] && echo "${VERSION_CODENAME:-}")" || true
    uri="$(apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 'Component: main' \
        | sed -n "s/^${suite:-none} //p" | head -n 1)"
    [ -n "$uri" ] || unavailable "this host's own suite has no package of it, and is not Debian"
    cat > "$1" << EOF
Types: deb
URIs: $uri
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOF
}

# What this host cannot do is switched off: all capabilities for root where one is missing, and systemd.
configure_apptainer() {
    local file=/etc/apptainer/apptainer.conf last all
    last="$(cat /proc/sys/kernel/cap_last_cap)"
    all="$(printf '%016x' $(((1 << (last + 1)) - 1)))"
    if [ "$(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)" != "$all" ]; then
        sed -i 's/^root default capabilities = .*/root default capabilities = no/' "$file"
    fi
    [ -d /run/systemd/system ] || sed -i 's/^systemd cgroups = .*/systemd cgroups = no/' "$file"
}

base_sif() {
    install_apptainer > /dev/null
    local tar image work program
    image="$cache/test-base-$SUITE-$(dpkg --print-architecture).sif"
    if [ ! -f "$image" ]; then
        tar="$(base_tar)"
        say "making $image"
        work="$(mktemp -d "$scratch/rootfs.XXXXXX")"
        program="$(command -v apptainer || command -v singularity)"
        { tar -C "$work" -xzf "$tar" \
            && "$program" build --mksquashfs-args "-Xcompression-level 1" "$image.$$" "$work"; } > "$scratch/sif.log" 2>&1 \
            || { tail -n 5 "$scratch/sif.log" >&2; rm -rf "$work" "$image.$$"; unavailable "the base image cannot be built"; }
        mv "$image.$$" "$image"
        rm -rf "$work"
    fi
    echo "$image"
}

images() { # options of build_images.sh
    need_engine
    base_image
    # A host with a certificate authority of its own says so in one of these.
    export CA_BUNDLE="${CA_BUNDLE:-${PIP_CERT:-${SSL_CERT_FILE:-${REQUESTS_CA_BUNDLE:-}}}}"
    build() { scripts/build_images.sh --cpu --base "$BASE_IMAGE" --network host --if-changed "$@" >&2; }
    # Once more: on a busy machine BuildKit may lose the connection through which it asks for build secrets.
    build "$@" || build "$@"
    # Each build leaves its predecessor behind without a name.
    docker image prune --force --filter label=org.4dcodebench.inputs > /dev/null
}

# Not compressed: they are made once and run a few times.
sif_images() {
    install_apptainer > /dev/null
    engine="Docker engine"
    MKSQUASHFS_ARGS="-noI -noD -noF -noX" images --sif-dir "$scratch/sif"
    echo "$scratch/sif"
}

slurm_answers() { # configuration file, or empty for the default one
    (if [ -n "$1" ]; then export SLURM_CONF="$1"; fi; timeout 10 sinfo --noheader --format=%T 2> /dev/null | grep -qE 'idle|mix|alloc')
}

slurm() {
    case "${1:-}" in
        start) shift; slurm_start "$@" ;;
        stop) slurm_stop ;;
        *) say "slurm start or slurm stop"; return 2 ;;
    esac
}

slurm_start() {
    local watched="" dir="$scratch/slurm" conf="$scratch/slurm/slurm.conf" waited=0
    engine=SLURM
    if [ "${1:-}" = --for ]; then watched="$2"; fi
    if [ -f "$conf" ] && slurm_answers "$conf"; then echo "export SLURM_CONF=$conf"; return 0; fi
    if [ "${SLURM_CONF:-$conf}" != "$conf" ] || [ -e /etc/slurm/slurm.conf ]; then
        if slurm_answers "${SLURM_CONF:-}"; then echo "export SLURM_CONF=${SLURM_CONF:-/etc/slurm/slurm.conf}"; return 0; fi
        [ "${SLURM_CONF:-$conf}" = "$conf" ] || unavailable "SLURM_CONF is $SLURM_CONF, and no controller answers"
    fi
    [ "$(id -u)" -eq 0 ] || unavailable "no cluster answers, and only root can start one"
    command -v apt-get > /dev/null && command -v dpkg > /dev/null \
        || unavailable "no cluster answers, and it can be installed on Debian and Ubuntu only"
    install_packages slurm-wlm munge
    slurm_stop
    say "starting a SLURM cluster in $dir"
    mkdir -p "$dir/state" "$dir/spool"
    slurm_configuration "$dir"
    head -c 1024 /dev/urandom > "$dir/munge.key"
    chmod 600 "$dir/munge.key"
    # (It is the scratch folder's mode that keeps others out.)
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munged.seed" 9>&- > "$dir/munged.out" 2>&1 \
        || slurm_failed munged
    slurmctld -f "$conf" 9>&- > "$dir/slurmctld.out" 2>&1 || slurm_failed slurmctld
    slurmd -f "$conf" -N fdcb 9>&- > "$dir/slurmd.out" 2>&1 || slurm_failed slurmd
    until slurm_answers "$conf"; do
        [ "$waited" -lt 120 ] || slurm_failed slurmd
        sleep 0.5
        waited=$((waited + 1))
    done
    if [ -n "$watched" ]; then
        setsid "$PWD/scripts/engines.sh" slurm-stop-after "$watched" > /dev/null 2>&1 < /dev/null 9>&- &
    fi
    echo "export SLURM_CONF=$conf"
}

slurm_failed() { # program
    tail -n 5 "$scratch/slurm/$1.out" "$scratch/slurm/$1.log" >&2 || true
    slurm_stop
    unavailable "$1 does not start, or its node does not come up"
}

slurm_configuration() { # folder
    local ports
    ports="$(python3 -c '
import socket
ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(end.getsockname()[1] for end in ends))')"
    cat > "$1/slurm.conf" << EOF
ClusterName=fdcb
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
AuthType=auth/munge
AuthInfo=socket=$1/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd.log
ReturnToService=2
KillWait=10
SchedulerParameters=batch_sched_delay=0,sched_interval=2
NodeName=fdcb NodeAddr=127.0.0.1 NodeHostname=$(hostname) CPUs=2 Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes=fdcb Default=YES MaxTime=INFINITE State=UP
EOF
    printf 'Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n' > "$1/gres.conf"
}

slurm_stop() {
    local dir="$scratch/slurm" name pid waited
    for name in slurmd slurmctld munged; do
        pid="$(cat "$dir/$name.pid" 2> /dev/null || true)"
        # A pid file that outlived its program may name any process by now.
        if [ -z "$pid" ] || ! tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -- "$dir/"; then continue; fi
        waited=0
        kill "$pid" 2> /dev/null || true
        while kill -0 "$pid" 2> /dev/null; do
            [ "$waited" -lt 40 ] || { kill -9 "$pid" 2> /dev/null || true; break; }
            sleep 0.25
            waited=$((waited + 1))
        done
    done
    rm -rf "$dir"
}

locked() { # one at a time: several test processes may ask at once
    mkdir -p "$scratch"
    chmod 700 "$scratch"
    exec 9> "$scratch/lock"
    flock 9
    "$@"
}

case "${1:-}" in
    start | stop | slurm) locked "$@" ;;
    base-image) locked base_image ;;
    apptainer) locked install_apptainer ;;
    base-sif) locked base_sif ;;
    images) locked images ;;
    sif-images) locked sif_images ;;
    cli-image) locked images --only agent --clis --tag clis ;;
    status) find_engine > /dev/null || exit "$UNAVAILABLE" ;;
    purge) locked stop; locked slurm stop; rm -rf "$scratch" ;;
    stop-after)
        while kill -0 "$2" 2> /dev/null; do sleep 1; done
        locked stop
        ;;
    slurm-stop-after)
        while kill -0 "$2" 2> /dev/null; do sleep 1; done
        locked slurm stop
        ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; [ "${1:-}" = --help ] || exit 2 ;;
esac
