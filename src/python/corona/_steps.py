"""Runs on the nodes: a function as a mapper, combiner or reducer.

  python3 -m corona._steps map|reduce MODULE FUNCTION

It reads and writes lines whose key and value have a tab between them. Bytes that are no UTF-8 pass unchanged.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

#: How bytes that are no UTF-8 are read and written.
ERRORS = "surrogateescape"
#: Set while a node imports the module of a step.
MARK = "CORONA_PYTHON_STEP"


def main() -> None:
    kind, module, name = sys.argv[1:]
    os.environ[MARK] = "1"
    step = getattr(importlib.import_module(module), name)
    for stream in (sys.stdin, sys.stdout):
        # Only a newline ends a line.
        stream.reconfigure(encoding="utf-8", errors=ERRORS, newline="\n")  # type: ignore[union-attr]
    write(map_lines(step) if kind == "map" else reduce_lines(step))
    sys.stdout.flush()


def map_lines(step: Callable[[str], Any]) -> Iterator[Any]:
    for line in sys.stdin:
        yield from records(step(line.rstrip("\n")))


def reduce_lines(step: Callable[[str, Iterator[str]], Any]) -> Iterator[Any]:
    pairs = (split(line) for line in sys.stdin)
    for key, group in groupby(pairs, lambda pair: pair[0]):
        yield from records(step(key, (value for _, value in group)))


def records(made: Any) -> Iterable[Any]:
    """What a step gives: one line, one pair, several of them, or nothing."""
    if made is None:
        return ()
    return (made,) if isinstance(made, (str, tuple)) else made


def split(line: str) -> tuple[str, str]:
    key, _, value = line.rstrip("\n").partition("\t")
    return key, value


def write(records: Iterable[Any]) -> None:
    out = sys.stdout.write
    for record in records:
        if isinstance(record, str):
            line = record
        else:
            key, value = record
            if "\t" in str(key):
                raise ValueError(f"the key {key!r} has a tab, which ends keys")
            line = f"{key}\t{value}"
        if "\n" in line:
            raise ValueError(f"{record!r} has a newline, which ends records")
        out(line + "\n")


if __name__ == "__main__":
    main()
