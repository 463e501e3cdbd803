"""``persistbench aggregate``: averages of the cases of an evaluation run (spec 70 §8.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .results import SCORES, check_manifest, checked_scores
from .store import identity, locked, read_json, write_json

_LOCK = ".aggregate.lock"
_SHOWN = 10
Scores = Mapping[str, "float | None"]


def group_of(use_stationary: object) -> str:
    """``static``, ``dynamic``, or ``unknown`` where the index says neither."""
    for value, name in ((1, "static"), (0, "dynamic")):
        if use_stationary == str(value) or (
            isinstance(use_stationary, (int, float)) and use_stationary == value
        ):
            return name
    return "unknown"


def averages(cases: list[Scores]) -> dict[str, Any]:
    """Count of cases, mean of each score over the cases that have it, and their number."""
    means: dict[str, float | None] = {}
    counts: dict[str, int] = {}
    for name in SCORES:
        there = [value for value in (case[name] for case in cases) if value is not None]
        means[name] = sum(there) / len(there) if there else None
        counts[name] = len(there)
    return {"cases": len(cases), "averages": means, "valid_counts": counts}


def summarise(manifest: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of checked, distinct results. Errors: ``ValueError`` naming the case that does not hold."""
    run_id = identity(manifest)
    per_case: dict[str, Scores] = {}
    groups: dict[str, list[Scores]] = {"static": [], "dynamic": [], "unknown": []}
    for result in results:
        scores = checked_scores(result, manifest, run_id)
        if result["uid"] in per_case:
            raise ValueError(f"Case {result['uid']} has two results")
        per_case[result["uid"]] = scores
        groups[group_of(result.get("use_stationary"))].append(scores)
    missing = sorted(set(manifest["case_ids"]) - set(per_case))
    return {
        "name": manifest.get("name"),
        "score_protocol": manifest["score_protocol"],
        "complete": not missing,
        "expected_cases": len(manifest["case_ids"]),
        "completed_cases": len(per_case),
        "missing_case_ids": missing,
        "judge": manifest.get("judge"),
        **averages(list(per_case.values())),
        "groups": {name: averages(cases) for name, cases in groups.items()},
        "per_case": per_case,
    }


def read_results(run: Path) -> list[dict[str, Any]]:
    """Results of a run's cases, sorted by uid. Errors: ``ValueError`` where one lies in another case's
    folder.
    """
    results = []
    for path in sorted(run.glob("*/result.json")):
        result = read_json(path)
        if not isinstance(result, dict) or result.get("uid") != path.parent.name:
            raise ValueError(f"{path} is not the result of {path.parent.name}")
        results.append(result)
    return sorted(results, key=lambda result: str(result["uid"]))


def aggregate(run: Path, allow_partial: bool = False) -> dict[str, Any]:
    """Average an evaluation run; write ``results.json`` and ``summary.json`` and return the summary.

    Errors: ``OSError``; ``ValueError`` for results that do not hold, and for missing cases unless
    ``allow_partial``.
    """
    manifest = check_manifest(read_json(run / "run.json"))
    with locked(run / _LOCK):
        results = read_results(run)
        summary = summarise(manifest, results)
        missing = summary["missing_case_ids"]
        if missing and not allow_partial:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise ValueError(
                f"{len(missing)} of {summary['expected_cases']} cases are missing: "
                f"{', '.join(missing[:_SHOWN])}{more}; evaluate them with --resume, or use --allow-partial"
            )
        write_json(run / "results.json", results)
        write_json(run / "summary.json", summary)
    return summary


def printed(summary: dict[str, Any]) -> str:
    """The summary as the command prints it: without the scores of single cases."""
    return json.dumps({key: value for key, value in summary.items() if key != "per_case"}, indent=2)
