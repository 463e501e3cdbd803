from __future__ import annotations

from pathlib import Path

import pytest

from contract.errors import UserError
from scorer.options import parse

BUILT = ("dynamic_iou", "mesh")


def test_defaults_are_those_of_the_container() -> None:
    options = parse([], BUILT)
    assert options.manifest == Path("/manifest.json")
    assert [options.roots.of(n) for n in ("cases", "data", "runs")] == [
        Path("/cases"),
        Path("/data"),
        Path("/runs"),
    ]
    assert options.roots.checkpoints == Path("/checkpoints")
    assert options.types == BUILT
    assert (options.jobs, options.redo) == (1, False)
    assert options.deadlines.seconds("mesh") == 1800
    assert options.deadlines.seconds("gate", preparation=True) == 600


@pytest.mark.parametrize(
    "given", [["--type", "mesh,dynamic_iou"], ["--type", "mesh", "--type", ",dynamic_iou,"], ["--type", ""]]
)
def test_types_may_be_repeated_or_joined_and_come_in_table_order(given: list[str]) -> None:
    assert parse(given, BUILT).types == BUILT
    assert parse(["--type", "mesh"], BUILT).types == ("mesh",)


def test_deadlines_fall_back_from_name_to_type_to_kind() -> None:
    deadlines = parse(
        ["--task-timeout", "5", "--timeout", "semantic=7", "--timeout", "gate=0.5"], BUILT
    ).deadlines
    assert deadlines.seconds("mesh") == 5
    assert deadlines.seconds("semantic_tips") == 7
    assert deadlines.seconds("gate", preparation=True) == 0.5
    assert deadlines.seconds("worker", preparation=True) == 600


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--type", "mesh,beauty"], "no such type; expected one of dynamic_iou, mesh"),
        (["--type", "flow"], "not built yet; expected one of dynamic_iou, mesh"),
        (["--task-timeout", "0"], "--task-timeout 0"),
        (["--prepare-timeout", "-1"], "--prepare-timeout -1"),
        (["--task-timeout", "nan"], "--task-timeout nan"),
        (["--task-timeout", "soon"], "invalid float"),
        (["--timeout", "mesh"], "NAME=SECONDS"),
        (["--timeout", "mesh=x"], "NAME=SECONDS"),
        (["--timeout", "mesh=0"], "NAME=SECONDS"),
        (["--timeout", "mish=3"], "did you mean mesh?"),
        (["--jobs", "0"], "--jobs 0"),
        (["--typ", "mesh"], "--typ"),
        (["surplus"], "surplus"),
    ],
)
def test_wrong_usage_is_one_line(given: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(given, BUILT)
    assert says in caught.value.line()
    assert "\n" not in caught.value.line()
