"""``python viewer/server.py``: cases, runs and results in a browser. Reads, never writes."""

from __future__ import annotations

if __name__ == "__main__":
    from contract.errors import end_on_interrupt

    end_on_interrupt()

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.errors import EXIT_OK, UserError, run_program
from viewer.trees import Trees

REPOSITORY = Path(__file__).resolve().parent.parent
PORT = 8130


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="python viewer/server.py", description=__doc__)
    options.add_argument("--port", type=int, default=PORT, help=f"0 takes a free one (default: {PORT})")
    options.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    for name in ("cases", "data", "runs"):
        options.add_argument(f"--{name}", type=Path, default=REPOSITORY / name, help=f"tree of {name}")
    return options


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ``UserError`` when the address is taken or none of ours."""
    if not 0 <= port <= 65_535:
        raise UserError("no such port", where=f"--port {port}", expected="0 to 65535")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, proto)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise UserError(
            (error.strerror or "cannot be listened on").lower(),
            where=f"{host}:{port}",
            next_step="give another --port, or 0 for a free one",
        ) from error
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted."""
    options = parser().parse_args(argv)
    trees = Trees.of(options.cases, options.data, options.runs)
    try:
        import uvicorn

        from viewer.app import LOOPBACK, make_app
    except ModuleNotFoundError as error:
        raise UserError(
            f"the package {error.name} is missing", next_step="pip install -e '.[viewer]'"
        ) from error
    local = options.host in LOOPBACK
    sockets = [listen(options.host, options.port)]
    app = make_app(trees, LOOPBACK if local else ("*",))
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{sockets[0].getsockname()[1]}/"
    sys.stdout.write(f"viewer: {address}  (Ctrl-C ends it)\n")
    sys.stdout.flush()
    if not local:
        sys.stderr.write("warning: anybody who reaches this address can read these trees\n")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    config.timeout_graceful_shutdown = 2
    uvicorn.Server(config).run(sockets=sockets)
    return EXIT_OK


if __name__ == "__main__":
    run_program(main)
