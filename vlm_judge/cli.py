"""The command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from contract.names import CASES, RUNS
from vlm_judge import questions

MODEL = "google/gemini-3.8-flash"
"""Judge of the published results."""
_EPILOG = (
    "Exit status: 0 all is judged, 1 something is left (run the same command again), 2 a fault in what was "
    "given, 3 the provider refused (key, credit, model), 130 stopped."
)


def arguments() -> argparse.ArgumentParser:
    """The command line of all four commands."""
    parser = argparse.ArgumentParser(
        prog="judge.py",
        description="Judge renders with a vision-language model, and sum up its answers.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _vqa(commands.add_parser("vqa", help="ask yes-or-no questions about one system's renders",
                             epilog=_EPILOG, allow_abbrev=False))  # fmt: skip
    _score(commands.add_parser("score", help="accuracy from answers", allow_abbrev=False))
    _pairwise(commands.add_parser("pairwise", help="ask which of two systems matches the reference better",
                                  epilog=_EPILOG, allow_abbrev=False))  # fmt: skip
    _elo(commands.add_parser("elo", help="ratings from comparisons", allow_abbrev=False))
    return parser


def _vqa(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _questions(parser)
    add("--system", required=True, metavar="NAME", help="directory name <agent>-<model>-<effort>")
    add("--out", required=True, type=Path, metavar="FILE", help="JSONL file; records are appended")
    add("--frames", type=int, default=16, metavar="N", help="frames of each render (16)")
    add("--width", type=int, default=768, metavar="PIXELS", help="width of a frame (768)")
    add("--max-tokens", type=int, default=4096, metavar="N", help="longest reply (4096)")
    add("--no-layer1", action="store_true", help="ask about blank renders too")
    _judging(parser)


def _pairwise(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _questions(parser)
    add("--cases", type=Path, default=Path(CASES), metavar="DIR", help="tree of the references (cases)")
    add("--out", required=True, type=Path, metavar="FILE", help="JSONL file; records are appended")
    add("--systems", default="", metavar="A,B,…", help="default: every system that has a render")
    add("--pairs", type=int, default=3, metavar="N", help="pairs a scene, 0 for the whole round (3)")
    add("--fps", type=float, default=3.0, metavar="RATE", help="frames a second of each video (3)")
    add("--width", type=int, default=512, metavar="PIXELS", help="width of a frame (512)")
    add("--max-tokens", type=int, default=1024, metavar="N", help="longest reply (1024)")
    add("--seed", type=int, default=0, help="of the choice of pairs (0)")
    add("--both-orders", action="store_true",
        help="show each pair in both orders; when the verdicts disagree it is a tie")  # fmt: skip
    add("--no-layer1", action="store_true", help="judge blank renders too")
    _judging(parser)


def _questions(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--questions", type=Path, default=None, metavar="FILE",
        help=f"question file ({questions.BENCHMARK.name} if it is there, else the demo's)")  # fmt: skip
    add("--split", choices=("real", "synthetic"), default=None, help="scenes of one kind only")
    add("--scenes", default="", metavar="ID,ID,…", help="these scenes only")


def _judging(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--runs", type=Path, default=Path(RUNS), metavar="DIR", help="tree of the runs (runs)")
    add("--trial", type=int, default=1, metavar="N", help="which trial of a system (1)")
    add("--model", default=MODEL, metavar="NAME", help=f"the judge ({MODEL})")
    add("--provider", default=None, metavar="NAME",
        help="litellm's name of who serves the model (openrouter; with --base-url: openai)")  # fmt: skip
    add("--base-url", default="", metavar="URL", help="another address of that provider's API")
    add("--key-env", default=None, metavar="NAME",
        help="environment variable with the API key (OPENROUTER_API_KEY; with --base-url: none)")  # fmt: skip
    add("--prompt", type=Path, default=None, metavar="FILE", help="a prompt of your own")
    add("--workers", type=int, default=3, metavar="N", help="calls at a time (3)")
    add("--attempts", type=int, default=8, metavar="N", help="times that one call is tried (8)")
    add("--timeout", type=float, default=600.0, metavar="S", help="seconds that one try may take (600)")
    add("--backoff", type=float, default=3.0, metavar="S", help="first wait after a failure (3)")
    add("--cache", type=Path, default=None, metavar="DIR",
        help="frames and replies, shared by all commands (.local/vlm_judge of the repository)")  # fmt: skip
    add("--dry-run", action="store_true", help="say what would be asked and what it might cost; ask nothing")
    add("--max-usd", type=float, default=None, metavar="DOLLARS", help="this command spends no more")
    add("--max-calls", type=int, default=None, metavar="N", help="this command sends no more requests")
    add("--price", default="", metavar="IN,OUT", help="dollars per million tokens, instead of the table's")


def _score(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("answers", type=Path, help="JSONL of vqa")
    add("--questions", type=Path, default=None, metavar="FILE", help="question file, as for vqa")
    add("--no-presence", action="store_true", help="let scenes count whose main thing the judge did not see")
    add("--boot", type=int, default=1000, metavar="N", help="draws for the intervals, 0 for none (1000)")
    _reporting(parser)


def _elo(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("pairs", type=Path, help="JSONL of pairwise")
    add("--prior", type=float, default=1.0, metavar="GAMES", help="imaginary games a system, half won (1)")
    add("--boot", type=int, default=200, metavar="N", help="draws for the intervals, 0 for none (200)")
    add("--boot-over", choices=("tasks", "comparisons"), default="tasks", help="what is resampled (tasks)")
    add("--judged-only", action="store_true", help="the model's verdicts only, no lost or blank renders")
    add("--both-orders", action="store_true",
        help="take the two orders of a pair as one comparison, a tie when they disagree")  # fmt: skip
    _reporting(parser)


def _reporting(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--seed", type=int, default=0, help="of the draws (0)")
    add("--judge", default="", metavar="NAME", help="records of this judge only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="everything as JSON")
    form.add_argument("--csv", action="store_true", help="the numbers as CSV")
