"""A runner `corona` for jobs of mrjob:

  python3 -m corona.mrjob JOB.py -r corona INPUT...

It is mrjob's runner `hadoop` with `corona hadoop` in place of Hadoop. Intermediate files are in the working directory,
which all machines must see, or in that of `--hadoop-tmp-dir`. Its options are below `corona` in the runners of
mrjob.conf. The job's file does not import this module, so that nodes do not need it.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

import mrjob.job
import mrjob.options
import mrjob.runner
from mrjob.hadoop import HadoopJobRunner

from ._program import Cluster

ALIAS = "corona"


class CoronaJobRunner(HadoopJobRunner):
    """Runs jobs of mrjob on the cluster of `HADOOP_CONF_DIR` or `corona login`."""

    alias = ALIAS

    @classmethod
    def _default_opts(cls) -> dict[str, Any]:
        return {
            **super()._default_opts(),
            "hadoop_bin": [Cluster().find_program(), "hadoop"],
            "hadoop_streaming_jar": "hadoop-streaming.jar",
            "hadoop_tmp_dir": f"file://{os.getcwd()}",
        }


def register() -> None:
    """Adds the runner to mrjob, which has no list of runners for others."""
    mrjob.options._RUNNER_ALIASES.add(ALIAS)
    known = mrjob.runner._runner_class

    def runner_class(alias: str) -> Any:
        return CoronaJobRunner if alias == ALIAS else known(alias)

    mrjob.runner._runner_class = runner_class
    mrjob.job._runner_class = runner_class


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit("usage: python3 -m corona.mrjob JOB.py -r corona [OPTION]... [INPUT]...")
    register()
    del sys.argv[0]
    # As if it had been started itself.
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
