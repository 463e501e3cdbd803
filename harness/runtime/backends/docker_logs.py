"""A container's output, written to a file while the container runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import docker
from docker.errors import APIError, DockerException, NotFound

from harness.runtime.backends.docker_engine import TRANSPORT_ERRORS, connect, is_busy

_PAUSE_S = 0.5


class _FileError(Exception):
    """The log file could not be written."""


class Follower(threading.Thread):
    """Copies output and error of one started container to the end of ``path`` until it runs no more.

    The engine keeps the whole output, so a broken connection loses nothing: reading starts again from the
    beginning and skips what was written. (The engine itself hands a line on when it is whole, or at 16
    KiB.) ``ended`` is set when everything up to the container's end is in the file, or when no more can be
    read or written.
    """

    def __init__(self, container: str, path: Path, host: str = "") -> None:
        super().__init__(name=f"log-{container[:12]}", daemon=True)
        self.ended = threading.Event()
        self.fault = ""
        """Why the file may be incomplete; empty when it is not."""
        self.ended_unseen = False
        """The container ended while the engine could not be reached: perhaps with it, not by itself."""
        self._container = container
        self._path = path
        self._host = host
        self._written = 0
        self._closing = threading.Event()

    def run(self) -> None:
        """Follow until the end; started by ``start``."""
        try:
            with self._path.open("ab") as file:
                while self._follow(file) and not self._closing.wait(_PAUSE_S):
                    pass
        except (OSError, _FileError) as error:
            # A full disk ends the log, not the job.
            self.fault = f"{self._path}: {error}"
        finally:
            self.ended.set()

    def finish(self, timeout: float) -> bool:
        """Wait for the rest of an ended container's output; False when the file is incomplete."""
        complete = self.ended.wait(timeout)
        self._closing.set()
        return complete and not self.fault

    def _follow(self, file: BinaryIO) -> bool:
        """Read one connection to its end; True when there is more to read."""
        try:
            client = connect(self._host)
        except (DockerException, *TRANSPORT_ERRORS) as error:
            return self._interrupted(error)
        try:
            if self.fault and not self._running(client):
                self.ended_unseen = True
            self._copy(client.api.logs(self._container, stream=True, follow=True), file)
            if self._running(client):
                return True
            # Following may end before a last line without line break is stored; once the engine calls the
            # container ended, all is.
            self._copy(client.api.logs(self._container, stream=True, follow=False), file)
            self.fault = ""
            return False
        except NotFound:
            self.fault = "the container is gone"
            return False
        except (APIError, *TRANSPORT_ERRORS) as error:
            return self._interrupted(error) and is_busy(error)
        finally:
            client.close()

    def _interrupted(self, error: Exception) -> bool:
        self.fault = str(error)
        return True

    def _running(self, client: docker.DockerClient) -> bool:
        return bool(client.api.inspect_container(self._container)["State"]["Running"])

    def _copy(self, chunks: Iterable[bytes], file: BinaryIO) -> None:
        """Write what of ``chunks`` (the output from its start) is not yet in the file."""
        skip = self._written
        for chunk in chunks:
            fresh = chunk[skip:]
            skip -= min(skip, len(chunk))
            if not fresh:
                continue
            try:
                file.write(fresh)
                file.flush()
            except OSError as error:
                raise _FileError(str(error)) from error
            self._written += len(fresh)
