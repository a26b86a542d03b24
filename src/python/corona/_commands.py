"""Lists of commands on the nodes: `corona run`."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time as clock
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._jobs import Job
from ._program import Child, Cluster, CoronaError, PathLike

#: Seconds between two looks at the table of results.
_PAUSE = 0.05


@dataclass(frozen=True)
class Result:
    """The result of one command. `id` is its number in the list, from 1, or the number of `array`.

    `status` is None for a command that a signal ended or that was not started; `reason` says why.
    """

    id: int
    status: int | None
    signal: int | None
    reason: str | None
    attempts: int
    seconds: float
    memory_bytes: int | None
    node: str
    stdout_bytes: int
    stderr_bytes: int
    _run: Run = field(repr=False, compare=False)

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and self.reason is None

    @property
    def stdout(self) -> bytes:
        """What the command has written to stdout."""
        return self._read("out")

    @property
    def stderr(self) -> bytes:
        """What the command has written to stderr."""
        return self._read("err")

    def _read(self, ending: str) -> bytes:
        try:
            return (self._run.directory / f"{self.id}.{ending}").read_bytes()
        except FileNotFoundError:
            return b""


class CommandsFailed(CoronaError):
    """Commands of a list failed; `results` are theirs."""

    def __init__(self, results: Sequence[Result]) -> None:
        first = results[0]
        why = first.reason or (
            f"signal {first.signal}" if first.signal is not None else f"exit status {first.status}"
        )
        super().__init__(f"{len(results)} commands failed; command {first.id}: {why}")
        self.results = tuple(results)


class Run:
    """A list of commands that runs. Iterated, it has the results in the order in which they arrive.

    As a context it waits at the end, or kills the commands if there is an exception.
    """

    def __init__(
        self,
        child: Child,
        directory: Path,
        cluster: Cluster,
        total: int,
        held: tuple[Any, ...],
    ) -> None:
        #: Where the results are. Without `output=` it lives as long as this object and its results; then the
        #: commands end with it, since nobody could read what they give.
        self.directory = directory
        #: The number of commands.
        self.total = total
        self._child = child
        self._cluster = cluster
        self._held = held
        #: Bytes of the table that `done` has read, and lines in them.
        self._counted = (0, 0)

    @property
    def job(self) -> Job | None:
        """The job that runs the commands; None if all of them had results before."""
        id = self._child.job
        return None if id is None else Job(id, self._cluster)

    @property
    def done(self) -> int:
        """The number of results."""
        at, count = self._counted
        for line in self._lines(follow=False, at=at):
            at, count = at + len(line), count + 1
        self._counted = (at, count)
        return count

    def __iter__(self) -> Iterator[Result]:
        """The results. Raises `CoronaError` at the end if commands have none."""
        for line in self._lines(follow=True):
            found = json.loads(line)
            yield Result(
                id=found["id"],
                status=found["status"],
                signal=found.get("signal"),
                reason=found.get("reason"),
                attempts=found["attempts"],
                seconds=found["seconds"],
                memory_bytes=found.get("memory_bytes"),
                node=found["node"],
                stdout_bytes=found["stdout_bytes"],
                stderr_bytes=found["stderr_bytes"],
                _run=self,
            )
        self._child.check(self._child.wait())

    def wait(self, timeout: float | None = None, *, check: bool = False) -> list[Result]:
        """Waits for the end, and returns the results in the order of the list.

        Raises `TimeoutError` after so many seconds, `CoronaError` if commands have no result, and with `check`
        `CommandsFailed` if one has failed.
        """
        self._child.wait(timeout)
        results = sorted(self, key=lambda result: result.id)
        failed = [result for result in results if not result.succeeded]
        if check and failed:
            raise CommandsFailed(failed)
        return results

    def kill(self) -> None:
        """Ends all commands, and waits until they have ended. Results that arrived stay."""
        self._child.kill()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.kill()
        else:
            self._child.wait()

    def _lines(self, follow: bool, at: int = 0) -> Iterator[bytes]:
        """The whole lines of the table from a place on; with `follow`, until the process that writes it has ended."""
        while True:
            # What it writes before its end is seen after this.
            is_last = not follow or self._child.has_ended()
            try:
                with open(self.directory / "results.jsonl", "rb") as table:
                    table.seek(at)
                    for line in table:
                        if not line.endswith(b"\n"):
                            break
                        at += len(line)
                        yield line
            except FileNotFoundError:
                pass
            if is_last:
                return
            clock.sleep(_PAUSE)


def run(
    command: str | Sequence[str] | None = None,
    *,
    array: range | str | None = None,
    each: Iterable[str] | None = None,
    commands: Iterable[str] | None = None,
    output: PathLike | None = None,
    resume: bool = False,
    retries: int = 0,
    max_running: int | None = None,
    time: float | None = None,
    memory: str | None = None,
    name: str | None = None,
    options: Sequence[str] = (),
    cluster: Cluster | None = None,
) -> Run:
    """Runs commands on the nodes, and returns when they have been submitted, or found to run still with `resume`.

    `command` runs once, or for each number of `array` or text of `each`, for which `{}` stands. It is a list of words,
    or one text, for the shell if it has blanks. `commands` are lines for the shell instead. All machines must see the
    working directory, or `output`, where the results are kept and from where `resume` goes on. `options` are further
    options of `corona run`.

    Raises `CoronaError` if they cannot be submitted.
    """
    cluster = cluster or Cluster()
    if (command is None) == (commands is None):
        raise ValueError("expected a command, or commands")
    held: list[Any] = []
    children: list[Child] = []
    if output is None:
        directory = Path(tempfile.mkdtemp(prefix=".corona-run-", dir=".")).absolute()
        held.append(_Temporary(directory, children))
        # Nodes may run as another user.
        directory.chmod(0o755)
    else:
        directory = Path(output).absolute()
    words = [cluster.find_program(), "run", f"--output={directory}", *cluster.options()]
    total = 1
    if array is not None:
        text, total = _array(array)
        words.append(f"--array={text}")
    for option, lines in (("--each-line", each), ("--commands", commands)):
        if lines is not None:
            file = Path(tempfile.mkdtemp(prefix="corona-")) / "list"
            held.append(_Temporary(file.parent, ()))
            total = _write(lines, file)
            words.append(f"{option}={file}")
    for option, value in (
        ("--retries", retries or None),
        ("--max-running", max_running),
        ("--time", time),
        ("--memory", memory),
        ("--name", name),
    ):
        if value is not None:
            words.append(f"{option}={value}")
    if resume:
        words.append("--resume")
    words += options
    if command is not None:
        words += ["--", *([command] if isinstance(command, str) else command)]
    child = Child(words, subprocess.DEVNULL)
    children.append(child)
    child.until_submitted()
    if child.job is None:
        child.check(child.wait())
    return Run(child, directory, cluster, total, tuple(held))


def _array(array: range | str) -> tuple[str, int]:
    """Numbers as the option has them, and how many they are."""
    if isinstance(array, str):
        span, _, step = array.partition(":")
        first, _, last = span.partition("-")
        try:
            array = range(int(first), int(last or first) + 1, int(step or 1))
        except ValueError:
            raise ValueError(f"array={array!r}: expected numbers such as range(1, 1001) or '1-1000'") from None
    if not array or array.step < 0 or array[0] < 0:
        raise ValueError("array: expected numbers from 0, the smaller ones first")
    return f"{array[0]}-{array[-1]}:{array.step}", len(array)


def _write(lines: Iterable[str], to: Path) -> int:
    """Writes a list, and returns how many lines it has."""
    count = 0
    with to.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            # The program leaves out empty lines, and each has the number of its place.
            if not line or any(end in line for end in "\r\n\0"):
                raise ValueError(f"expected one line that is not empty and has no NUL byte: {line!r}")
            file.write(line + "\n")
            count += 1
    if count == 0:
        raise ValueError("the list is empty: there is nothing to run")
    return count


class _Temporary:
    """A directory that is deleted with this object, when the processes that use it have been ended."""

    def __init__(self, path: Path, users: Sequence[Child]) -> None:
        weakref.finalize(self, _delete, path, users)


def _delete(path: Path, users: Sequence[Child]) -> None:
    for child in users:
        child.kill()
    shutil.rmtree(path, ignore_errors=True)
