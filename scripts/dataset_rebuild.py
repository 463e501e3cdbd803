"""Videos that the real data set does not hold: its own script rebuilds them, if the user trusts it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dataset_cases import CaseWork
from dataset_layout import REAL_REPO, SCRIPT, Item
from dataset_place import PlaceFault, place_file
from dataset_sources import Source
from hub_files import Published

from contract.errors import UserError
from contract.names import REFERENCE_VIDEO
from world.packed.unpack import file_digest

_SHORTEST = 12


def rebuild(works: Sequence[CaseWork], source: Source, scratch: Path, allowed: str | None) -> None:
    """Have the videos of these cases made by the data set's script, or say of each how that is done.

    allowed : the beginning of the SHA-256 of the script that the user has read and lets run. A script that
    came over the network is not run otherwise. Raises ``UserError`` when it is another one.
    """
    published = source.files(REAL_REPO).get(SCRIPT)
    if published is None:
        for work in works:
            work.faults.append(f"{REFERENCE_VIDEO}: the data set holds neither the video nor {SCRIPT}")
        return
    script = source.bring(REAL_REPO, published, scratch / Path(SCRIPT).name, lambda have, total: None)
    digest = file_digest(script)
    if allowed is None:
        for work in works:
            work.faults.append(
                f"{REFERENCE_VIDEO}: the data set does not hold this video; its script rebuilds it: read "
                f"{script}, and if you trust it, give --allow-script {digest[:16]}"
            )
        return
    if not re.fullmatch(rf"[0-9a-f]{{{_SHORTEST},64}}", allowed) or not digest.startswith(allowed):
        raise UserError(
            f"--allow-script {allowed}: the data set's script is another one",
            where=script,
            expected=f"the SHA-256 of a script that you have read, here {digest[:16]}",
        )
    _run(script, digest, works, scratch)


def _run(script: Path, digest: str, works: Sequence[CaseWork], scratch: Path) -> None:
    videos, downloads = scratch / "videos", scratch / "sources"
    videos.mkdir(exist_ok=True)
    names = [work.place.name for work in works]
    print(f"real: rebuilding {len(names)} video(s) with {script.name} {digest[:16]}", flush=True)
    words = [sys.executable, str(script), "--downloads", str(downloads), "--out", str(videos), *names]
    status = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    for work in works:
        video = videos / f"{work.place.name}.mp4"
        if not video.is_file():
            ended = f"{script.name} ended with status {status} and made no {video.name}"
            work.faults.append(f"{REFERENCE_VIDEO}: {ended}")
            continue
        item = Item(REAL_REPO, Published(SCRIPT), REFERENCE_VIDEO, work.place.video)
        try:
            place_file(item, video, move=True)
        except PlaceFault as error:
            work.faults.append(f"{REFERENCE_VIDEO}: {error}")
            continue
        work.record.enter(
            REFERENCE_VIDEO, {"dataset": REAL_REPO, "rebuilt_by": SCRIPT, "script_sha256": digest}
        )
    if not any(work.faults for work in works):
        shutil.rmtree(downloads, ignore_errors=True)
