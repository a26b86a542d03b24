"""Jobs of programs or functions that read and write lines: `corona job run`."""

from __future__ import annotations

import inspect
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from . import _steps
from ._jobs import Failure, Job, JobFailed
from ._program import Child, Cluster, CoronaError, PathLike

#: A program, or a function: of a line for a mapper, of a key and its values for a reducer. It returns a whole
#: line, a pair of a key and a value, or a list of them, or yields them.
Step: TypeAlias = "str | Callable[..., Any]"


class MapReduce(Job):
    """A job that this process has submitted, and follows.

    As a context it waits at the end, or kills the job if there is an exception.
    """

    def __init__(self, child: Child, id: str, output: str, cluster: Cluster) -> None:
        super().__init__(id, cluster)
        #: The directory that it writes.
        self.output = output
        self._child = child

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it has succeeded and its output is seen here.

        Raises `JobFailed`, or `TimeoutError` after so many seconds.
        """
        status = self._child.wait(timeout)
        self._child.check(status)
        if status != 0:
            end = self._child.result()
            failures = [Failure.of(failure) for failure in end.get("failures", ())]
            raise JobFailed(self.id, end.get("state", "FAILED"), failures)

    def lines(self) -> Iterator[str]:
        """Waits for the end, and gives the lines of its output, which must not be compressed."""
        self.wait()
        words = [self.cluster.find_program(), "fs", "cat", *self.cluster.options(for_jobs=False)]
        command = [*words, "--", f"{self.output.rstrip('/')}/part-*"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cat:
            assert cat.stdout is not None and cat.stderr is not None
            for line in cat.stdout:
                yield line.decode(errors=_steps.ERRORS).rstrip("\n")
            # One line, at the end.
            reason = cat.stderr.read().decode(errors="replace").strip()
        if cat.returncode != 0:
            raise CoronaError(reason)

    def pairs(self) -> Iterator[Sequence[str]]:
        """Like `lines`, each as a key and a value."""
        for line in self.lines():
            key, _, value = line.partition("\t")
            yield key, value

    def __enter__(self) -> MapReduce:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._child.kill()
        else:
            self.wait()


def map_reduce(
    inputs: str | Sequence[str],
    output: str,
    *,
    mapper: Step,
    reducer: Step | None = None,
    combiner: Step | None = None,
    reduces: int | None = None,
    files: Sequence[PathLike] = (),
    archives: Sequence[PathLike] = (),
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    python: str = "python3",
    options: Sequence[str] = (),
    cluster: Cluster | None = None,
) -> MapReduce:
    """Submits a job, and returns when it has been submitted.

    A step is a command, as `corona job run` has it, or a function of a module, which `python` of the nodes runs: the
    module's file, or the whole of its package, goes with the job. `settings` are keys of the job; `options` are
    further options of `corona job run`.

    Raises `CoronaError` if it cannot be submitted.
    """
    cluster = cluster or Cluster()
    shipped: dict[str, Path] = {}
    words = [cluster.find_program(), "job", "run", "--json", *cluster.options()]
    words += [f"--input={uri}" for uri in ([inputs] if isinstance(inputs, str) else inputs)]
    words.append(f"--output={output}")
    for role, step in (("mapper", mapper), ("combiner", combiner), ("reducer", reducer)):
        if step is not None:
            words.append(f"--{role}={_command(role, step, python, shipped)}")
    if name is None and not isinstance(mapper, str):
        name = mapper.__name__
    for option, value in (("--reduces", reduces), ("--name", name)):
        if value is not None:
            words.append(f"{option}={value}")
    words += [f"--file={os.fspath(file)}" for file in [*files, *shipped.values()]]
    words += [f"--archive={os.fspath(archive)}" for archive in archives]
    words += [f"--env={key}={value}" for key, value in (env or {}).items()]
    words += [f"-D{key}={value}" for key, value in (settings or {}).items()]
    words += ["--overwrite"] if overwrite else []
    child = Child([*words, *options], subprocess.PIPE)
    child.until_submitted()
    if child.job is None:
        child.check(child.wait())
        raise CoronaError("the job was not submitted")
    return MapReduce(child, child.job, output, cluster)


def _command(role: str, step: Step, python: str, shipped: dict[str, Path]) -> str:
    """The command of a step; what it needs on the nodes is added to `shipped`."""
    if isinstance(step, str):
        return step
    module = inspect.getmodule(step)
    name = getattr(step, "__qualname__", "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not step:
        raise ValueError(f"{step!r} is no function of a module; expected one, or a command")
    path = _module(module, shipped)
    shipped["corona"] = Path(__file__).resolve().parent
    kind = "map" if role == "mapper" else "reduce"
    return shlex.join([*shlex.split(python), "-m", "corona._steps", kind, path, name])


def _module(module: ModuleType, shipped: dict[str, Path]) -> str:
    """The name of a module on the nodes, whose file or package is shipped."""
    spec = module.__spec__
    source = getattr(module, "__file__", None)
    if source is None:
        raise ValueError(
            "functions of an interactive session cannot be shipped; put them into a file, and import it"
        )
    path = Path(source).resolve()
    if module.__name__ == "__main__" and spec is None:
        name = path.stem
    else:
        name = spec.name if spec is not None else module.__name__
    top, _, rest = name.partition(".")
    if rest:
        package = sys.modules[top].__file__
        if package is None:
            raise ValueError(f"the package {top} has no __init__.py; expected one")
        path = Path(package).resolve().parent
    elif path.name == "__init__.py":
        path = path.parent
    if not name.replace(".", "").isidentifier():
        raise ValueError(f"{path} cannot be imported; expected a name such as my_job.py")
    shipped[top] = path
    return name
