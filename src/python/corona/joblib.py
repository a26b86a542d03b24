"""A backend `corona` for joblib:

  import corona.joblib
  with joblib.parallel_config("corona"):
      joblib.Parallel()(joblib.delayed(work)(item) for item in items)

Calls are pickled to files in the working directory, which all machines must see, and commands of `corona.run` run
them and print what they return. Nodes need the same Python and packages, under the same paths.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from joblib.parallel import (
    AutoBatchingMixin,
    ParallelBackendBase,
    register_parallel_backend,
)

from ._commands import Result, Run, run
from ._program import Cluster, CoronaError

try:
    import cloudpickle
except ImportError:
    from joblib.externals import cloudpickle

#: Runs a call, given its file: first it needs the paths where modules are. What the call prints goes to stderr.
_TASK = """
import os, pickle, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
with open(sys.argv[1], "rb") as file:
    sys.path[:], call = pickle.load(file)
pickle.loads(call)(out)
"""
#: Lists of commands that run at a time; calls that are made while so many run are one list.
_MOST_RUNS = 16
#: Seconds for which a list waits for further calls.
_GATHERING = 0.05


class CoronaBackend(AutoBatchingMixin, ParallelBackendBase):
    """Runs the calls of `joblib.Parallel` on the nodes of a cluster."""

    supports_retrieve_callback = True
    default_n_jobs = -1
    # A list of commands takes some tenths of a second to start.
    MIN_IDEAL_BATCH_DURATION = 1
    MAX_IDEAL_BATCH_DURATION = 20

    def __init__(
        self, cluster: Cluster | None = None, python: str = sys.executable, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._cluster = cluster or Cluster()
        self._python = python
        self._lock = threading.Condition()
        self._waiting: list[tuple[Path, Future[Any]]] = []
        self._runs: set[Run] = set()
        self._threads = self._count = self._aborts = 0
        self._directory: Path | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The slots for maps of the cluster, or fewer."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        slots = self._cluster.ask("status", for_jobs=False)["slots"]["MAP"]["total"]
        if slots == 0:
            raise CoronaError("the cluster has no slots for maps")
        if n_jobs is None:
            return 1
        return int(n_jobs if n_jobs > 0 else max(slots + 1 + n_jobs, 1))

    def submit(self, func: Callable[[], Any], callback: Callable[..., Any] | None = None) -> Any:
        future: Future[Any] = Future()
        if callback is not None:
            future.add_done_callback(callback)
        paths = [os.path.abspath(path) for path in sys.path]
        call = pickle.dumps((paths, cloudpickle.dumps(partial(_execute, func))))
        with self._lock:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix=".corona-joblib-", dir=".")).absolute()
                # Nodes may run as another user.
                self._directory.chmod(0o755)
            self._count += 1
            path = self._directory / f"{self._count}.call"
            path.write_bytes(call)
            self._waiting.append((path, future))
            if self._threads < _MOST_RUNS:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the commands that run, and drops the calls that wait."""
        with self._lock:
            dropped, self._waiting = self._waiting, []
            self._aborts += 1
            runs = list(self._runs)
        for _, future in dropped:
            future.cancel()
        for started in runs:
            started.kill()

    def terminate(self) -> None:
        """Waits for the end of the lists, whose calls have ended, and deletes the files."""
        with self._lock:
            self._lock.wait_for(lambda: self._threads == 0)
            directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _work(self) -> None:
        """Runs the calls that wait, one list after the other, until there is none."""
        while True:
            time.sleep(_GATHERING)
            with self._lock:
                calls, self._waiting = self._waiting, []
                if not calls:
                    self._threads -= 1
                    self._lock.notify_all()
                    return
                aborts = self._aborts
            try:
                self._run(calls, aborts)
            except Exception as error:
                for _, future in calls:
                    if not future.done():
                        future.set_exception(error)

    def _run(self, calls: list[tuple[Path, Future[Any]]], aborts: int) -> None:
        command = [self._python, "-c", _TASK, "{}"]
        paths = [str(path) for path, _ in calls]
        started = run(command, each=paths, name="joblib", cluster=self._cluster)
        with self._lock:
            self._runs.add(started)
            is_aborted = self._aborts != aborts
        try:
            if is_aborted:
                started.kill()
            for result in started:
                path, future = calls[result.id - 1]
                try:
                    future.set_result(_value(path, result))
                except Exception as error:
                    future.set_exception(error)
        finally:
            with self._lock:
                self._runs.discard(started)


def _value(call: Path, result: Result) -> Any:
    """What a call has returned; what it has raised is raised."""
    if not result.succeeded:
        text = result.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
        raise CoronaError(text or result.reason or "the process of the call ended")
    has_returned, value = pickle.loads(result.stdout)
    call.unlink()
    if not has_returned:
        raise value
    return value


def _execute(func: Callable[[], Any], out: BinaryIO) -> None:
    """Runs on a node: writes what a call returns or raises."""
    try:
        has_returned, value = True, func()
    except Exception as error:
        has_returned, value = False, error
    with out:
        out.write(cloudpickle.dumps((has_returned, value)))


register_parallel_backend("corona", CoronaBackend)
