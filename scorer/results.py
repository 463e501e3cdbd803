"""The two result files of a world: ``reward.json`` (a number or state a key) and ``reward.detail.json``.

Every write covers a set of types, or of units (``contract.metrics.units_of``): what they owned before is
dropped, what they say now is laid over the rest, so that ``--type`` keeps what other types wrote.
``reward.json`` is written first; a type's stamp in the detail repeats its readings, so a scorer killed
between the two files leaves a type that is visibly not up to date.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract import PROTOCOL, names
from contract.constants import DETAIL_LIMIT
from contract.metrics import metrics_of, owners
from contract.record import finite, read_json, write_json
from contract.states import (
    ERROR,
    EXCLUDED,
    NO_PAIRING,
    UNCOMPUTABLE,
    Reading,
    case_state,
    failure_cause,
    reading,
)
from scorer import __version__, arrays
from scorer.messages import Gates, Measured

CAUSES, GATE_FAILURE, INFRASTRUCTURE, STAMPS = "causes", "gate_failure", "infrastructure", "scorer"
SKIPPED = "skipped"
PER_FRAME, OF_FRAMES = "semantic_per_frame", ("semantic_frames", "semantic_stride")
_CAUSED = (ERROR, UNCOMPUTABLE, EXCLUDED)


@dataclass(frozen=True)
class Stamp:
    """What a type's result rests on.

    inputs : digest of everything read. deadline : seconds that it had; it only matters after a time-out.
    """

    inputs: str
    deadline: float | None = None


@dataclass
class Results:
    """Both files of one directory, read once under the directory's lock and rewritten at every step."""

    directory: Path
    case: str
    reward: dict[str, Any] = field(init=False)
    detail: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.reward = _read(self.directory / names.REWARD)
        self.detail = _read(self.directory / names.REWARD_DETAIL)

    # What is there already.

    def up_to_date(self, name: str, stamp: Stamp) -> bool:
        """Whether this scorer scored the type from these inputs, and both files and the arrays are there."""
        old = self.stamp(name)
        if (old.get("inputs"), old.get("version"), old.get("protocol")) != (
            stamp.inputs,
            __version__,
            PROTOCOL,
        ):
            return False
        before = old.get("deadline")
        more_time = not isinstance(before, int | float) or (stamp.deadline or 0) > before
        if old.get("timed_out") and stamp.deadline is not None and more_time:
            return False
        readings = {key: self.reward.get(key) for key in _keys([name])}
        files = old.get("arrays", [])
        return readings == old.get("readings") and all((self.directory / file).is_file() for file in files)

    def stamp(self, name: str) -> dict[str, Any]:
        """The stored stamp of a type, empty when there is none."""
        found = _object(_object(self.detail.get(STAMPS)).get("types")).get(name)
        return _object(found)

    def gates(self, inputs: str) -> Gates | None:
        """The stored outcome of the gates if it rests on the same inputs, else None."""
        found = _object(_object(self.detail.get(STAMPS)).get("gates"))
        same = (found.get("inputs"), found.get("version")) == (inputs, __version__)
        return Gates.of(self.detail) if same else None

    # What is written.

    def write_gates(self, gates: Gates, inputs: str | None, facts: Mapping[str, Any]) -> None:
        """Record both gates, ``inputs`` None when they must run again next time, and further members."""
        closed = gates.closed
        record: dict[str, Any] = {
            **facts,
            "dimensions": None if gates.dimensions is None else list(gates.dimensions),
            "video_gate": gates.video.record(),
            "world_gate": None if gates.world is None else gates.world.record(),
            "status": "ok" if closed is None else GATE_FAILURE,
        }
        if closed is not None:
            record[GATE_FAILURE] = f"{closed.cause}: " + "; ".join(closed.detail)[:DETAIL_LIMIT]
        self.detail.pop(GATE_FAILURE, None)
        self.detail = merged(self.detail, ("geometry",), {})
        self._clear_infrastructure(("gate",))
        stamp = {} if inputs is None else {"inputs": inputs, "version": __version__}
        self._commit((), {}, record, gate_stamp=stamp)

    def write_measured(
        self,
        name: str,
        measured: Measured,
        stamp: Stamp,
        steps: Iterable[str] = (),
        prepared: Mapping[str, Any] | None = None,
        keep: Collection[str] = (),
        **facts: Any,
    ) -> None:
        """Record a type's measurement and publish its arrays. ``facts`` go into the stamp.

        steps : preparation steps that it rests on; what they said of an earlier failure goes.
        prepared : their detail fields. keep : array files of the type that are there already, and stay.
        """
        for step in steps:
            self.detail.pop(f"{step}_failure", None)
        arrays.publish(self.directory, name, measured.staged, keep)
        failures = "; ".join(str(text) for key, text in measured.detail.items() if key.endswith("_failure"))
        readings = {}
        for metric in metrics_of(name):
            readings[metric.key] = reading(
                metric.key,
                self.case,
                measured.detail.get(metric.detail_key),
                vouched=measured.vouched is None or metric.key in measured.vouched,
                uncomputable=measured.causes.get(metric.key, NO_PAIRING),
                failures=failures,
            )
        facts["arrays"] = sorted(measured.staged)
        detail = {**(prepared or {}), **measured.detail}
        self._commit((name,), readings, detail, stamps={name: (stamp, facts)})

    def write_error(
        self, name: str, text: str, stamp: Stamp, step: str = "", keep: Collection[str] = (), **facts: Any
    ) -> None:
        """Record that a type failed on this submission: all its keys become ``error``, its old arrays go.

        step : the preparation step that failed, when it was not the metric itself. keep : arrays that stay.
        """
        cause = failure_cause(text)
        arrays.discard(self.directory, [file for file in arrays.files_of([name]) if file not in keep])
        readings = {key: reading(key, self.case, error=cause) for key in _keys([name])}
        detail = {f"{failed}_failure": text for failed in (name, step) if failed}
        self._commit((name,), readings, detail, stamps={name: (stamp, {**facts, "failed": True})})

    def write_refused(self, stamps: Mapping[str, Stamp], cause: str) -> None:
        """Record types that a closed gate refuses."""
        arrays.discard(self.directory, arrays.files_of(stamps))
        readings = {key: reading(key, self.case, error=cause) for key in _keys(stamps)}
        self._commit(
            tuple(stamps), readings, {}, stamps={n: (s, {"failed": True}) for n, s in stamps.items()}
        )

    def write_inapplicable(self, stamps: Mapping[str, Stamp]) -> None:
        """Record types none of whose keys can be scored on the case."""
        readings = {key: state for key in _keys(stamps) if (state := case_state(key, self.case)) is not None}
        known = _object(self.detail.get(CAUSES))
        if any(
            (self.reward.get(k), known.get(k)) != (state.value, state.cause) for k, state in readings.items()
        ):
            arrays.discard(self.directory, arrays.files_of(stamps))
            self._commit(tuple(stamps), readings, {}, stamps={n: (s, {}) for n, s in stamps.items()})

    def write_infrastructure(self, name: str, text: str, keep: Collection[str] = ()) -> None:
        """Record that the machine failed on a type: its keys are absent, so that it runs again next time.

        keep : arrays that stay.
        """
        arrays.discard(self.directory, [file for file in arrays.files_of([name]) if file not in keep])
        noted = {**_object(self.detail.get(INFRASTRUCTURE)), name: text}
        self._commit((name,), {}, {}, infrastructure=noted)

    def write_ungated(self, types: Iterable[str], text: str, facts: Mapping[str, Any]) -> None:
        """Record that the machine failed at a gate: nothing is known about any of the types."""
        types = tuple(types)
        arrays.discard(self.directory, arrays.files_of(types))
        self.detail.pop(GATE_FAILURE, None)
        unknown = dict.fromkeys(("dimensions", "video_gate", "world_gate"))
        noted = {**_object(self.detail.get(INFRASTRUCTURE)), "gate": text}
        record = {**facts, **unknown, "status": INFRASTRUCTURE}
        self._commit(types, {}, record, gate_stamp={}, infrastructure=noted)

    def note_skipped(self, wanted: Collection[str], skipped: Mapping[str, str]) -> None:
        """Record which units are left out for want of a model, and why; what they had stays as it is.

        wanted : the other units of this scoring: no longer left out, whatever becomes of them.
        """
        before = _object(self.detail.get(SKIPPED))
        noted = {name: text for name, text in before.items() if name not in wanted} | dict(skipped)
        if noted != before:
            self.detail.pop(SKIPPED, None)
            if noted:
                self.detail[SKIPPED] = noted
            self._commit((), {}, {})

    def _commit(
        self,
        types: tuple[str, ...],
        readings: Mapping[str, Reading],
        detail: Mapping[str, Any],
        *,
        stamps: Mapping[str, tuple[Stamp, Mapping[str, Any]]] | None = None,
        gate_stamp: Mapping[str, Any] | None = None,
        infrastructure: Mapping[str, str] | None = None,
    ) -> None:
        self.reward = merged(self.reward, types, {key: item.value for key, item in readings.items()})
        new_causes = {key: item.cause for key, item in readings.items() if item.cause is not None}
        self.detail = merged_detail(self.detail, types, detail)
        self.detail[CAUSES] = causes(_object(self.detail.get(CAUSES)), new_causes, self.reward)
        if infrastructure is None:
            self._clear_infrastructure(types)
        else:
            self.detail[INFRASTRUCTURE] = dict(infrastructure)
        self._stamp(types, stamps or {}, gate_stamp)
        self.reward, self.detail = finite(self.reward), finite(self.detail)
        write_json(self.directory / names.REWARD, self.reward)
        write_json(self.directory / names.REWARD_DETAIL, self.detail)

    def _stamp(
        self,
        types: tuple[str, ...],
        stamps: Mapping[str, tuple[Stamp, Mapping[str, Any]]],
        gate_stamp: Mapping[str, Any] | None,
    ) -> None:
        block = _object(self.detail.get(STAMPS))
        kept = {name: old for name, old in _object(block.get("types")).items() if name not in types}
        for name, (stamp, facts) in stamps.items():
            kept[name] = {
                "failed": False,
                "arrays": [],
                **facts,
                "inputs": stamp.inputs,
                "deadline": stamp.deadline,
                "version": __version__,
                "protocol": PROTOCOL,
                "readings": {key: self.reward.get(key) for key in _keys([name])},
            }
        gates = block.get("gates") if gate_stamp is None else dict(gate_stamp)
        self.detail[STAMPS] = {
            "version": __version__,
            "protocol": PROTOCOL,
            "types": kept,
            "gates": gates or {},
        }

    def _clear_infrastructure(self, types: Iterable[str]) -> None:
        left = {
            name: text for name, text in _object(self.detail.get(INFRASTRUCTURE)).items() if name not in types
        }
        self.detail.pop(INFRASTRUCTURE, None)
        if left:
            self.detail[INFRASTRUCTURE] = left


def merged(old: Mapping[str, Any], types: Iterable[str], new: Mapping[str, Any]) -> dict[str, Any]:
    """``old`` without the keys that any of ``types`` owns, overlaid with ``new``."""
    covered = set(types)
    return {**{key: value for key, value in old.items() if not owners(key) & covered}, **new}


def merged_detail(old: Mapping[str, Any], types: Iterable[str], new: Mapping[str, Any]) -> dict[str, Any]:
    """Like :func:`merged`; what single backbones say per frame is merged one level deeper."""
    covered = set(types)
    result = merged(old, covered, new)
    kept = {key: rows for key, rows in _object(old.get(PER_FRAME)).items() if not owners(key) & covered}
    result[PER_FRAME] = {**kept, **_object(new.get(PER_FRAME))}
    if not result[PER_FRAME]:
        for field_name in (PER_FRAME, *OF_FRAMES):
            result.pop(field_name, None)
    return result


def causes(old: Mapping[str, str], new: Mapping[str, str], reward: Mapping[str, Any]) -> dict[str, str]:
    """Causes after a write: the new over the old, and only for keys whose reading now has one."""
    return {key: cause for key, cause in {**old, **new}.items() if reward.get(key) in _CAUSED}


def _keys(types: Iterable[str]) -> list[str]:
    return [metric.key for name in types for metric in metrics_of(name)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    """A result file's object; empty when absent. One that is no JSON object holds nothing worth keeping."""
    try:
        return _object(read_json(path))
    except (FileNotFoundError, ValueError):
        return {}
