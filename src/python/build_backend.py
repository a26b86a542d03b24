"""Makes the wheel, for `pip` and for `scripts/package`, without any other package.

  python3 src/python/build_backend.py DIRECTORY

Two builds of one state have the same bytes: files are sorted, not compressed, and without times. There is no
source distribution: the version is that of the workspace, in its Cargo.toml.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def version() -> str:
    """The workspace's version, as PEP 440 has it: 0.2.0-dev is 0.2.0.dev0."""
    package = (ROOT / "Cargo.toml").read_text().split("[workspace.package]", 1)[1]
    found = re.search(r'^version = "([^"]+)"$', package, re.MULTILINE)
    if found is None:
        raise SystemExit("Cargo.toml has no version")
    return found.group(1).replace("-dev", ".dev0")


def metadata() -> str:
    project = (HERE / "pyproject.toml").read_text()
    description, requires = (
        re.search(rf'^{key} = "([^"]+)"$', project, re.MULTILINE)
        for key in ("description", "requires-python")
    )
    assert description and requires
    return (
        "Metadata-Version: 2.1\n"
        "Name: corona\n"
        f"Version: {version()}\n"
        f"Summary: {description.group(1)}\n"
        "License: Apache-2.0\n"
        f"Requires-Python: {requires.group(1)}\n"
        "Provides-Extra: joblib\n"
        "Requires-Dist: joblib>=1.5 ; extra == 'joblib'\n"
        "Provides-Extra: mrjob\n"
        "Requires-Dist: mrjob>=0.7 ; extra == 'mrjob'\n"
    )


def build_wheel(
    wheel_directory: str,
    config_settings: object = None,
    metadata_directory: object = None,
) -> str:
    """Writes the wheel to a directory, and returns its name."""
    name = f"corona-{version()}"
    info = f"{name}.dist-info"
    sources = sorted((HERE / "corona").glob("*.py")) + [HERE / "corona" / "py.typed"]
    files = {f"corona/{path.name}": path.read_bytes() for path in sources}
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: corona\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{info}/RECORD"
    files[record] = "".join(
        [f"{path},sha256={digest(data)},{len(data)}\n" for path, data in files.items()] + [f"{record},,\n"]
    ).encode()
    wheel = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return wheel


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
