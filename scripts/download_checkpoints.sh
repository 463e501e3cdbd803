#!/bin/sh
exec "${FOURDCB_PYTHON:-python}" "$(dirname -- "$0")/download_checkpoints.py" "$@"
