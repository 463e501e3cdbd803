"""``python -m checker``: every violation of a delivery, one a line."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import sys
from pathlib import Path

from checker.program import existing_workspace, parser, run
from checker.report import check_workspace
from contract.errors import EXIT_ITEM_FAILED, EXIT_OK, UserError
from contract.names import CONTAINER
from contract.record import dumps

DESCRIPTION = """Check a delivery (world/ and solution/) before it is scored. Violations go to standard
output, one a line; advice and a summary go to standard error. Status: 0 nothing is wrong, 1 violations,
2 wrong use, 3 internal error."""


def main(arguments: list[str] | None = None) -> int:
    """Check and print; returns the exit status."""
    options = parser("checker", DESCRIPTION)
    options.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options.add_argument("--strict", action="store_true", help="let advice count as violations")
    options.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help=f"input video that the render must match (default: {CONTAINER.video} where it exists)",
    )
    given = options.parse_args(arguments)
    workspace = existing_workspace(given.workspace)
    report = check_workspace(workspace, _input_video(given.video), strict=given.strict)
    # A name in a delivery may hold anything; the terminal's encoding must not be what fails.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout.write(
        dumps(report.record()) if given.json else "".join(f"{line}\n" for line in report.lines())
    )
    sys.stdout.flush()
    sys.stderr.write("".join(f"{line}\n" for line in report.notes()))
    return EXIT_OK if report.clean else EXIT_ITEM_FAILED


def _input_video(given: Path | None) -> Path | None:
    if given is not None:
        if not given.is_file():
            raise UserError("is no file", where=given, next_step="name the input video with --video FILE")
        return given
    default = Path(CONTAINER.video)
    return default if default.is_file() else None


if __name__ == "__main__":
    run(main, "checker")
