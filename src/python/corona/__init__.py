"""Jobs and lists of commands on a cluster of Corona.

The package calls the program `corona`, which finds the cluster and has the rights of its user. It needs no other
package. `run` runs commands, `map_reduce` a job of programs or functions; both return an object to follow it.
"""

from ._commands import CommandsFailed, Result, Run, run
from ._jobs import Failure, Job, JobFailed, Log, Status, Tasks, jobs
from ._map_reduce import MapReduce, map_reduce
from ._program import Cluster, CoronaError

__all__ = [
    "Cluster",
    "CommandsFailed",
    "CoronaError",
    "Failure",
    "Job",
    "JobFailed",
    "Log",
    "MapReduce",
    "Result",
    "Run",
    "Status",
    "Tasks",
    "jobs",
    "map_reduce",
    "run",
]
