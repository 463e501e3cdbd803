"""``persistbench package``: the ZIP that the leaderboard takes (spec 70 §9)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from .aggregate import summarise
from .results import check_manifest, same_number
from .store import replacing

MEMBERS = ("run.json", "results.json", "summary.json")
PUBLISHED_CASES = 2000
LARGEST_UNPACKED = 256 << 20
LARGEST_ZIP = 100 << 20


def package(run: Path, output: Path, allow_subset: bool = False) -> Path:
    """Check an aggregated run and pack it; the files are stored byte for byte as they were checked.

    Errors: ``OSError``; ``ValueError`` saying what does not hold. Nothing is written then.
    """
    output = output.expanduser().resolve()
    paths = [run / name for name in MEMBERS]
    if output in [path.resolve() for path in paths]:
        raise ValueError(f"--output {output} is one of the files to pack")
    contents = {}
    for path in paths:
        if not path.is_file():
            raise ValueError(f"Missing {path.name}; run persistbench aggregate first")
        contents[path.name] = path.read_bytes()
    check_contents({name: _parsed(run / name, data) for name, data in contents.items()}, allow_subset)
    if sum(map(len, contents.values())) > LARGEST_UNPACKED:
        raise ValueError(
            f"The three files exceed {LARGEST_UNPACKED >> 20} MiB; the leaderboard takes no more"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as partial:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in contents.items():
                archive.writestr(name, data, zipfile.ZIP_DEFLATED)
        if partial.stat().st_size > LARGEST_ZIP:
            raise ValueError(f"The ZIP exceeds {LARGEST_ZIP >> 20} MiB; the leaderboard takes no more")
    return output


def _parsed(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


def check_contents(contents: dict[str, Any], allow_subset: bool) -> None:
    """Derive the summary again and compare. Errors: ``ValueError`` saying what does not hold."""
    manifest = check_manifest(contents["run.json"])
    results, summary = contents["results.json"], contents["summary.json"]
    count = len(manifest["case_ids"])
    if count != PUBLISHED_CASES and not allow_subset:
        raise ValueError(
            f"The run has {count} cases; the leaderboard requires all {PUBLISHED_CASES:,} published cases "
            "(--allow-subset packs it for diagnosis)"
        )
    if not isinstance(results, list) or len(results) != count:
        raise ValueError("results.json does not hold one result per case; run persistbench aggregate again")
    derived = summarise(manifest, results)
    if not isinstance(summary, dict) or summary.get("complete") is not True:
        raise ValueError("summary.json is not of a complete run; run persistbench aggregate again")
    if not isinstance(summary.get("per_case"), dict) or set(summary["per_case"]) != set(derived["per_case"]):
        raise ValueError("summary.json: per_case does not cover exactly the cases of the run")
    wrong = difference(derived, summary, "")
    if wrong:
        raise ValueError(f"summary.json: {wrong} differs from the results; run persistbench aggregate again")


def difference(derived: Any, stated: Any, where: str) -> str | None:
    """The first place in which ``stated`` differs from ``derived``; keys beyond those derived are
    tolerated.
    """
    if isinstance(derived, dict):
        if not isinstance(stated, dict):
            return where or "it"
        for key, value in derived.items():
            place = f"{where}.{key}" if where else str(key)
            if key not in stated:
                return place
            found = difference(value, stated[key], place)
            if found:
                return found
        return None
    if isinstance(derived, float):
        return None if same_number(stated, derived) else where
    return None if type(derived) is type(stated) and derived == stated else where
