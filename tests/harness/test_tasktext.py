"""The documents for agents: placeholders filled, and everything said that must be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.names import CONTAINER, TASK_FILES
from harness.runtime.tasktext import CONTEXT, duration, fill, placeholders, task_text, write_task

VALUES = placeholders(CONTAINER, "python -m checker", "python -m checker.preview", 21_600)


def test_the_container_paths_stand_in_the_task() -> None:
    text = task_text(VALUES)
    assert "{{" not in text
    assert "}}" not in text
    for part in (
        "`/input/reference.mp4`", "`/workspace/world`", "`/workspace/solution`", "`/task`",
        "`python -m checker`",
        "`python -m checker.preview`", "`/workspace/tmp/preview_0000.png`", "You have 6 hours",
    ):  # fmt: skip
        assert part in text
    assert "input.mp4" not in text


@pytest.mark.parametrize("text", ["{{paths.wold}}", "{{paths.task.x}}", "{{a}}"])
def test_an_unknown_placeholder_is_an_error(text: str) -> None:
    with pytest.raises(KeyError):
        fill(text, VALUES)


@pytest.mark.parametrize("text", ["{{ paths.task }}", "{{paths.task}", "}}", "{{Paths.task}}", "{{}}"])
def test_a_stray_brace_pair_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="double brace"):
        fill(text, VALUES)


def test_what_is_filled_in_is_not_read_again() -> None:
    assert fill("{{paths.task}}", {"paths.task": "{{paths.video}}"}) == "{{paths.video}}"


def test_three_documents_are_written_and_only_the_first_is_a_template(tmp_path: Path) -> None:
    write_task(tmp_path / "task", "filled")
    assert sorted(path.name for path in (tmp_path / "task").iterdir()) == sorted(TASK_FILES)
    assert (tmp_path / "task" / "TASK.md").read_text(encoding="utf-8") == "filled"
    for name in TASK_FILES[1:]:
        assert (tmp_path / "task" / name).read_bytes() == (CONTEXT / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "TASK.md",
            ["Blender", "build.sh", "no network", "Copying pixels", "fails", "Flat stand-ins", "column *j*",
             "scores zero",
             "`.py` and `.sh` files only", "/opt/blender-docs", "NumPy", "Taichi", "Warp", "Trimesh",
             "render-settings.md"],
        ),
        (
            "world-format.md",
            ["+Z", "+x right, +y down, +z forward", "camera to world", "(width / 2, height / 2)",
             "(i + 0.5, j + 0.5)",
             "1 to 65535", "10,000 frames", "float32 (V, 3)", "int32 (T, 3)", "float32 (F, N, 3)",
             "uint16 (M,)",
             "int32 (K, 4)", "exclude each", "NaN", "static", "identical", "No other members",
             'cache_type = "ALL"',
             "`cache_directory`", "`domain_min`", "`metres_per_unit`", "`time_scale`", "`liquid_ids`",
             "shrinks", "H.264",
             "nb_read_frames,width,height,r_frame_rate", "-count_frames", "symbolic link"],
        ),
        (
            "render-settings.md",
            ["CYCLES", "resolution_percentage = 100", "samples = 128", "use_denoising = True", "OPTIX",
             "refresh_devices",
             'media_type = "VIDEO"', 'file_format = "FFMPEG"', "MPEG4", "H264", "fps_base",
             "use_file_extension = False",
             "render0001-0251.mp4", "BLENDER_EEVEE", "= 50"],
        ),
    ],
)  # fmt: skip
def test_each_document_states_its_facts(name: str, facts: list[str]) -> None:
    text = " ".join((CONTEXT / name).read_text(encoding="utf-8").split())
    assert [fact for fact in facts if fact not in text] == []


def test_the_media_type_is_set_before_the_file_format() -> None:
    text = (CONTEXT / "render-settings.md").read_text(encoding="utf-8")
    assert text.index('media_type = "VIDEO"') < text.index('file_format = "FFMPEG"')


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1 second"), (45, "45 seconds"), (60, "1 minute"), (3600, "1 hour"), (21_600, "6 hours"),
        (5400, "90 minutes"), (700, "11 minutes"), (601, "10 minutes"), (599, "599 seconds"), (86_399,
        "1439 minutes"),
    ],
)  # fmt: skip
def test_durations_read_as_people_say_them_and_never_promise_too_much(seconds: int, text: str) -> None:
    assert duration(seconds) == text
