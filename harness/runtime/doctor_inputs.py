"""Checks of the doctor: cases, what belongs to them, model weights and prices."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from contract import checkpoint_store
from contract.cases import KINDS, REAL, SYNTHETIC
from contract.checkpoints import CHECKPOINTS
from contract.errors import UserError
from contract.names import ANNOTATION, DYNAMIC_MASK, ESTIMATES, REFERENCE_VIDEO, WORLD
from harness.runtime import accounting, prices
from harness.runtime.agentconfig import AgentTable
from harness.runtime.agents import BUILT_IN
from harness.runtime.doctor_check import FAIL, OK, WARN, Check, Finding, Patient, failed, quick
from harness.runtime.jobs import reference_video
from harness.runtime.mp4boxes import check_video

DOWNLOAD = "python scripts/download_checkpoints.py"
_HASHES_S = 3600.0


def checks(patient: Patient) -> list[Check]:
    """Of what runs and scores start from."""
    return [
        Check("cases", quick(cases, patient), 600.0),
        Check("data", quick(data, patient)),
        Check("checkpoints", quick(checkpoints, patient), _HASHES_S if patient.hashes else 60.0),
        Check("prices", quick(costs, patient)),
    ]


def case_names(patient: Patient) -> tuple[str, ...]:
    """Cases of the jobs, without jobs all that there are, as ``<kind>/<case>``."""
    if patient.keys:
        return tuple(dict.fromkeys(key.case for key in patient.keys))
    root = patient.runtime.cases
    return tuple(
        f"{kind}/{path.name}"
        for kind in KINDS
        if (root / kind).is_dir()
        for path in sorted((root / kind).iterdir())
        if path.is_dir()
    )


def cases(patient: Patient) -> Finding:
    """Each case has a whole video."""
    root, names = patient.runtime.cases, case_names(patient)
    if not names:
        step = "python scripts/make_demo_case.py makes some; or correct cases_root"
        return Finding("cases", FAIL, f"there is no case below {root}", step)
    faults = []
    for name in names:
        try:
            check_video(reference_video(name, patient.runtime.cases))
        except UserError as error:
            faults.append(error)
    if faults:
        first = failed("cases", faults[0])
        step = first.fix or f"bring the case's {REFERENCE_VIDEO} again"
        return Finding("cases", FAIL, f"{len(faults)} of {len(names)} videos: {first.what}", step)
    return Finding("cases", OK, f"{len(names)} below {root}, each with a whole video")


def data(patient: Patient) -> Finding:
    """What metrics compare with: a reference world for synthetic cases, a mask for real ones, and
    estimates.
    """
    root = patient.runtime.data
    needed = {SYNTHETIC: Path(WORLD), REAL: Path(ANNOTATION, DYNAMIC_MASK)}
    names = case_names(patient)
    if not names:
        return Finding("data", WARN, "not looked at: there is no case")
    without = [f"{name}/{needed[name.split('/')[0]]}" for name in names]
    without = [path for path in without if not (root / path).exists()]
    if without:
        text = (
            f"{len(without)} of {len(names)} cases have nothing to compare with, such as {root / without[0]}"
        )
        step = "bring the reference data to data_root; metrics that need them have no value without"
        return Finding("data", WARN, text, step)
    raw = [name for name in names if not (root / name / ESTIMATES).is_dir()]
    if raw:
        text = f"{len(raw)} of {len(names)} cases have no estimates, such as {root / raw[0] / ESTIMATES}"
        step = "python -m scorer.prepare makes them; metrics that need them have no value without"
        return Finding("data", WARN, text, step)
    return Finding("data", OK, f"{len(names)} cases with references and estimates below {root}")


def checkpoints(patient: Patient) -> Finding:
    """Model weights: all there and, with hashes, the published ones."""
    name, store = "checkpoints", patient.runtime.checkpoints
    if store is None:
        return Finding(name, WARN, "[scorer] checkpoints names no store", DOWNLOAD)
    if not store.is_dir():
        named = "checkpoints" in patient.runtime.file.scorer.model_fields_set
        text = f"{store} does not exist: nothing can be scored that needs a learned model"
        return Finding(name, FAIL if named else WARN, text, f"{DOWNLOAD} {store}")
    faults = checkpoint_store.faults(store, CHECKPOINTS, hashes=patient.hashes)
    if not faults:
        how = "sizes and hashes are right" if patient.hashes else "present (--hashes looks at their content)"
        return Finding(name, OK, f"{len(CHECKPOINTS)} models in {store}, {how}")
    step = f"{DOWNLOAD} {store}; or score what needs no model: score.py --allow-missing-models"
    if not any((store / CHECKPOINTS[model].directory).exists() for model in CHECKPOINTS):
        return Finding(name, WARN, f"{store} holds none of the {len(CHECKPOINTS)} models", step)
    text = f"{len(faults)} of {len(CHECKPOINTS)} models: {next(iter(faults.values())).split('; run: ')[0]}"
    return Finding(name, FAIL, text, step)


def costs(patient: Patient) -> Finding:
    """Whether dollars and tokens will be known, which a budget needs."""
    prices.use(patient.runtime.price_file)
    budget = patient.runtime.file.budget
    dollars = budget.max_usd is not None or budget.max_usd_per_run is not None
    tokens = budget.max_tokens is not None or budget.max_tokens_per_run is not None
    bad = FAIL if dollars else WARN
    readers = {(key.agent, key.model): _reader(patient, key.agent) for key in patient.keys}
    uncounted = [agent for (agent, _), reader in readers.items() if not accounting.counted(reader)]
    if uncounted and (dollars or tokens):
        text = f"[budget] cannot be kept: nobody counts the tokens of agent {uncounted[0]}"
        step = f"say in [agent.{uncounted[0]}] which transcript it writes"
        return Finding("prices", FAIL, text, step)
    for (_, model), reader in readers.items():
        if accounting.counted(reader) and not accounting.priced(reader, model):
            why = accounting.why_unpriced(reader, model) or f"no price is known for {model!r}"
            return Finding("prices", bad, why, 'name prices of your own: [prices] overlay = "prices.toml"')
    if not readers and not prices.installed():
        text = "no price table is installed: what runs cost will not be known"
        return Finding("prices", bad, text, 'pip install "fourdcodebench[prices]", or [prices] overlay')
    return Finding("prices", OK, _known(readers.values(), patient))


def _known(readers: Iterable[str], patient: Patient) -> str:
    own = f", and {patient.runtime.price_file}" if patient.runtime.price_file else ""
    if any(accounting.counted(reader) for reader in readers):
        return f"every model of the jobs has a price{own}"
    return f"the price table is installed{own}" if prices.installed() else f"none needed{own}"


def _reader(patient: Patient, agent: str) -> str:
    table = patient.runtime.file.agent.agents.get(agent, AgentTable())
    return agent if agent in BUILT_IN else table.transcript
