"""A job of a cluster, whoever has submitted it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ._program import Cluster, CoronaError

#: Seconds between two looks at a job: the first pause and the longest.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True)
class Tasks:
    """How many maps or reduces a job has, by their state."""

    tasks: int
    complete: int
    running: int
    failed: int
    killed: int


@dataclass(frozen=True)
class Failure:
    """A task that has failed for good, and the reason of its last attempt."""

    task: str
    attempts: int
    reason: str
    log: str | None

    @staticmethod
    def of(found: Mapping[str, Any]) -> Failure:
        return Failure(found["task"], found["attempts"], found["reason"], found.get("log"))


@dataclass(frozen=True)
class Status:
    """The state of a job at one moment; `map_progress` and `reduce_progress` are between 0 and 1.

    They are None for a job that has failed or was killed.
    """

    id: str
    name: str
    user: str
    state: str
    priority: str
    map_progress: float | None
    reduce_progress: float | None
    started_ms: int
    ended_ms: int | None
    page: str
    maps: Tasks | None
    reduces: Tasks | None
    failures: tuple[Failure, ...]

    @property
    def is_over(self) -> bool:
        return self.state in ("SUCCEEDED", "FAILED", "KILLED")

    @staticmethod
    def of(found: Mapping[str, Any]) -> Status:
        def tasks(name: str) -> Tasks | None:
            counts = found.get(name)
            if counts is None:
                return None
            names = ("tasks", "complete", "running", "failed", "killed")
            return Tasks(*(counts[name] for name in names))

        profile = found.get("profile") or {}
        return Status(
            id=found["id"],
            name=profile.get("name", ""),
            user=found["user"],
            state=found["state"],
            priority=found["priority"],
            map_progress=found["map_progress"],
            reduce_progress=found["reduce_progress"],
            started_ms=found["started_ms"],
            ended_ms=found.get("ended_ms"),
            page=profile.get("url", ""),
            maps=tasks("maps"),
            reduces=tasks("reduces"),
            failures=tuple(Failure.of(failure) for failure in found.get("failures", ())),
        )


@dataclass(frozen=True)
class Log:
    """One log of an attempt: `stdout`, `stderr` or `syslog`."""

    attempt: str
    state: str
    log: str
    text: str


class JobFailed(CoronaError):
    """A job failed or was killed; `failures` are the tasks that failed for good."""

    def __init__(self, job: str, state: str, failures: Sequence[Failure]) -> None:
        reasons = "; ".join(f"{failure.task}: {failure.reason}" for failure in failures)
        super().__init__(f"{job} {state.lower()}" + (f": {reasons}" if reasons else ""))
        self.job = job
        self.state = state
        self.failures = tuple(failures)


class Job:
    """A job of a job tracker."""

    def __init__(self, id: str, cluster: Cluster | None = None) -> None:
        self.id = id
        self.cluster = cluster or Cluster()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def status(self) -> Status:
        """Its state now."""
        return Status.of(self.cluster.ask("jobs", "info", self.id))

    def counters(self) -> dict[str, dict[str, int]]:
        """Its counters, by group and name."""
        groups: dict[str, dict[str, int]] = {}
        for counter in self.cluster.ask("jobs", "counters", self.id):
            groups.setdefault(counter["group"], {})[counter["name"]] = counter["value"]
        return groups

    def logs(self, task: str | None = None, *, log: str = "all", tail: int | None = None) -> list[Log]:
        """The logs of a task or an attempt; by default those of attempts that failed, else of some that succeeded.

        `log` is `stdout`, `stderr` or `syslog`; `tail` limits each log to its last bytes.
        """
        words = ["jobs", "logs", self.id, *([task] if task else []), f"--log={log}"]
        if tail is not None:
            words.append(f"--tail={tail}")
        return [
            Log(attempt["attempt"], attempt["state"], found["log"], found["text"])
            for attempt in self.cluster.ask(*words)
            for found in attempt["logs"]
        ]

    def kill(self) -> None:
        """Kills it. Raises `CoronaError` if it has ended."""
        self.cluster.call("jobs", "kill", self.id)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it has succeeded.

        Raises `JobFailed`, or `TimeoutError` after so many seconds.
        """
        due = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_PAUSE
        while True:
            status = self.status()
            if status.state == "SUCCEEDED":
                return
            if status.is_over:
                raise JobFailed(self.id, status.state, status.failures)
            if due is not None and time.monotonic() >= due:
                raise TimeoutError(f"{self.id} still runs")
            left = _LONGEST_PAUSE if due is None else max(0.0, due - time.monotonic())
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)


def jobs(*, all: bool = False, cluster: Cluster | None = None) -> list[Status]:
    """The jobs that run, and with `all` those that have ended and that the job tracker remembers."""
    words = ["jobs", "list", *(["--all"] if all else [])]
    return [Status.of(found) for found in (cluster or Cluster()).ask(*words)]
