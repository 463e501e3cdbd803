"""The command line (spec 70 §1). Only commands that work are offered."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .aggregate import aggregate, printed
from .index import parse_path_map
from .infer import InferOptions, infer, read_model_config
from .registration import open_registered, register, registered
from .store import shard
from .submission import PUBLISHED_CASES, package
from .version import __version__

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. Faults are one line on standard error."""
    parser = build_parser()
    options = parser.parse_args(argv)
    if hasattr(options, "split_id"):
        try:
            shard(0, options.num_splits, options.split_id)
        except ValueError as error:
            parser.error(str(error))
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return _fault("interrupted; run the same command with --resume to continue", EXIT_INTERRUPTED)
    # A user's model may raise anything; the traceback is in the shard's log.
    except Exception as error:
        return _fault(message_of(error), EXIT_FAILED)


def message_of(error: BaseException) -> str:
    """One line that says what went wrong; the type's name where the text alone would not tell."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    told = isinstance(error, (OSError, ValueError, RuntimeError, ImportError)) and bool(text)
    return " ".join((text if told else f"{type(error).__name__}: {text}").split())


def _fault(message: str, status: int) -> int:
    print(f"persistbench: {message}", file=sys.stderr)
    return status


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="persistbench", description=__doc__)
    parser.add_argument("--version", action="version", version=f"persistbench {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_dataset(commands)
    _add_infer(commands)
    _add_results(commands)
    return parser


def _add_dataset(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dataset = commands.add_parser("dataset", help="tell persistbench where the dataset is")
    actions = dataset.add_subparsers(dest="action", required=True)
    remember = actions.add_parser("register", help="check a reconstructed dataset and remember it")
    remember.add_argument("path", type=Path, metavar="PATH")
    remember.set_defaults(run=_register)
    show = actions.add_parser("show", help="print where the registered dataset is")
    show.set_defaults(run=_show)


def _register(options: argparse.Namespace) -> int:
    dataset = register(options.path)
    print(f"Registered dataset: {dataset.root} ({len(dataset.cases)} completed cases)")
    return 0


def _show(options: argparse.Namespace) -> int:
    print(registered())
    return 0


def _add_infer(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("infer", aliases=["run"], help="run a model over the dataset's cases")
    add = parser.add_argument
    add("--model", required=True, metavar="SPEC", help="package.module:Class or path/to/file.py:Class")
    add("--model-config", type=Path, metavar="FILE", help="JSON object of constructor arguments")
    _add_selection(parser)
    add("--output", type=Path, default=Path("outputs"), help="output root (default: ./outputs)")
    add("--name", help="the run's name (default: the class's name in lower case)")
    add("--device", default="cuda:0", help="given to the model's constructor (default: cuda:0)")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="keep complete cases, make the others")
    again.add_argument("--overwrite", action="store_true", help="make all cases again")
    parser.set_defaults(run=_infer)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", type=Path, help="must name the registered dataset (default: that one)")
    add("--db-path", type=Path, help="index (default: DATASET/database.db, else DATASET/data.db)")
    add(
        "--path-map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="relocate a path prefix; repeatable",
    )
    add("--num-splits", type=int, default=1, help="number of shards (default: 1)")
    add("--split-id", type=int, default=0, help="this shard, from 0 (default: 0)")


def _infer(options: argparse.Namespace) -> int:
    maps = tuple(parse_path_map(text) for text in options.path_map)
    dataset = open_registered(options.dataset, options.db_path, maps)
    outcome = infer(
        dataset,
        InferOptions(
            model=options.model,
            output=options.output,
            name=options.name,
            num_splits=options.num_splits,
            split_id=options.split_id,
            device=options.device,
            resume=options.resume,
            overwrite=options.overwrite,
            config=read_model_config(options.model_config),
        ),
    )
    if outcome.failed:
        uid, message = outcome.failed[0]
        count = len(outcome.failed)
        return _fault(
            f"{count} case{'s' if count != 1 else ''} failed, first {uid}: {' '.join(message.split())}; "
            f"run again with --resume to retry. Log: {outcome.run / 'logs'}",
            EXIT_FAILED,
        )
    print(f"Predictions: {outcome.run}")
    return 0


def _add_results(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("aggregate", help="average the cases of an evaluation run")
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="evaluation run")
    parser.add_argument("--allow-partial", action="store_true", help="average although cases are missing")
    parser.set_defaults(run=_aggregate)
    parser = commands.add_parser("package", help="pack an aggregated run for the leaderboard")
    parser.add_argument("--results", type=Path, required=True, metavar="DIR", help="evaluation run")
    parser.add_argument("--output", type=Path, default=Path("submission.zip"), metavar="FILE")
    parser.add_argument(
        "--allow-subset", action="store_true", help="pack another number of cases (diagnosis)"
    )
    parser.set_defaults(run=_package)


def _aggregate(options: argparse.Namespace) -> int:
    print(printed(aggregate(options.results, options.allow_partial)))
    return 0


def _package(options: argparse.Namespace) -> int:
    print(f"Submission ZIP: {package(options.results, options.output, options.allow_subset)}")
    if options.allow_subset:
        print(
            "Diagnostic subset packaging enabled; "
            f"the leaderboard requires all {PUBLISHED_CASES:,} published cases."
        )
    return 0
