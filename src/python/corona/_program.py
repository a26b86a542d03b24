"""The program `corona`: where it is, one call of it, and one that runs on beside this process."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from ._steps import MARK

PathLike = Union[str, "os.PathLike[str]"]

#: Lines that the program writes to stderr, at the level INFO.
LOG = logging.getLogger("corona")
#: Lines of stderr that are kept for an error.
_KEPT_LINES = 100
_JOB = re.compile(r"(job_[0-9.]+_[0-9]+): ")


class CoronaError(Exception):
    """A call of the program failed; the text is its reason."""


@dataclass(frozen=True)
class Cluster:
    """A cluster, and the program that reaches it.

    `conf_dir` is the directory of the configuration files: by default that of `HADOOP_CONF_DIR`, else the cluster of
    `corona login`. `job_tracker` is `HOST:PORT`. `settings` are keys of the configuration. `program` is the path of
    `corona`: by default that of `CORONA_BIN`, else the one on the path.
    """

    conf_dir: PathLike | None = None
    job_tracker: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    program: PathLike | None = None

    def find_program(self) -> str:
        """The path of the program."""
        if os.environ.get(MARK):
            raise CoronaError(
                "a node imported this module for one of its functions; put what submits jobs below "
                "if __name__ == '__main__'"
            )
        named = self.program or os.environ.get("CORONA_BIN")
        found = os.fspath(named) if named else shutil.which("corona")
        if found is None:
            raise CoronaError(
                "there is no program corona on the path; install it, or name it with CORONA_BIN"
            )
        return found

    def options(self, for_jobs: bool = True) -> list[str]:
        """The options of the program that name this cluster."""
        options = []
        if self.conf_dir is not None:
            options.append(f"--conf-dir={os.fspath(self.conf_dir)}")
        if self.job_tracker is not None and for_jobs:
            options.append(f"--job-tracker={self.job_tracker}")
        for key, value in self.settings.items():
            options.append(f"-D{key}={value}")
        return options

    def call(self, *words: str, for_jobs: bool = True) -> bytes:
        """What a command of the program prints.

        Raises `CoronaError` if it fails.
        """
        command = [self.find_program(), *words, *self.options(for_jobs)]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if ended.returncode != 0:
            lines = ended.stderr.decode(errors="replace").splitlines()
            raise CoronaError(_reason(lines, ended.returncode))
        return ended.stdout

    def ask(self, *words: str, for_jobs: bool = True) -> Any:
        """The JSON that a command of the program prints."""
        return json.loads(self.call(*words, "--json", for_jobs=for_jobs))


def _reason(lines: Sequence[str], status: int) -> str:
    """Why the program failed, from its stderr."""
    for start in ("corona: ", "error: "):
        for line in reversed(lines):
            if line.startswith(start):
                return line[len(start) :]
    return lines[-1] if lines else f"corona ended with status {status}"


class Child:
    """A process of the program that follows a job. SIGTERM kills the job, as Ctrl-C does."""

    def __init__(self, command: Sequence[str], stdout: int) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE
        )
        #: The id of the latest job that it follows.
        self.job: str | None = None
        self._output = b""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._submitted = threading.Event()
        self._threads = [threading.Thread(target=self._read_errors, daemon=True)]
        if stdout == subprocess.PIPE:
            self._threads.append(threading.Thread(target=self._read_output, daemon=True))
        for thread in self._threads:
            thread.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            for line in stderr:
                text = line.decode(errors="replace").rstrip("\n")
                LOG.info("%s", text)
                self._lines.append(text)
                found = _JOB.match(text)
                if found:
                    self.job = found.group(1)
                    self._submitted.set()
        self._submitted.set()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            self._output = stdout.read()

    def until_submitted(self) -> None:
        """Waits until a job has been submitted, or is found to run still, or the process has ended."""
        self._submitted.wait()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises `TimeoutError` after so many seconds."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.job or 'the job'} still runs") from None
        for thread in self._threads:
            thread.join()
        return status

    def result(self) -> dict[str, Any]:
        """The JSON that it has printed; empty if it failed before."""
        return json.loads(self._output) if self._output else {}

    def check(self, status: int) -> None:
        """Raises its own error, if it has one; a job or a command that failed is none."""
        has_own = any(line.startswith("corona: ") for line in self._lines)
        if status > 1 or status < 0 or (status == 1 and has_own):
            # No variable of a frame has it: together they would live until the next collection, and what they hold.
            raise CoronaError(_reason(list(self._lines), status))

    def kill(self) -> None:
        """Kills the job, and waits for the end of the process."""
        if not self.has_ended():
            # What a script starts in its background has SIGINT ignored.
            self._process.terminate()
        self.wait()
