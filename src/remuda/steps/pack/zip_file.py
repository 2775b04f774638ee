"""Packs the agent into one file for any Python 3.11 or newer: a zip of pure Python that needs nothing installed.

Beside each source is its compiled form, which a Python of the same version uses, because it starts much faster. The
same sources and the same version of Python give the same bytes."""

import importlib.util
import marshal
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

OWN = ("remuda.lib", "remuda.wire.proto", "remuda.steps", "remuda.stdsteps")
FOREIGN = ("grpclib", "h2", "hpack", "hyperframe", "multidict", "google.protobuf", "yaml")
LEFT_OUT = (
    "grpclib/_typing",
    "grpclib/testing",
    "grpclib/channelz/",
    "grpclib/health/",
    "grpclib/plugin/",
    "grpclib/reflection/",
    "google/protobuf/compiler/",
    "google/protobuf/pyext/",
    "google/protobuf/testdata/",
    "google/protobuf/util/",
    "google/protobuf/internal/json_format_benchmark",
    "google/protobuf/internal/message_benchmark",
    "google/protobuf/internal/testing_refleaks",
    "yaml/cyaml",
)
"""Parts that are never imported, some of which need modules that are not packed."""

_MAIN = '''"""The packed agent."""
import sys

if __name__ == "__main__":
    from remuda.steps.__main__ import main
    sys.exit(main())
'''
_ALONE = ("remuda/__init__.py", "remuda/wire/__init__.py", "remuda/wire/http2.py")
"""Single modules of packages that are not packed otherwise."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
"""Header flags of a compiled module: it is not compared with its source."""
_PLAIN = 2
"""The newest marshal format without back-references, which are not deterministic."""


def pack(output: Path) -> None:
    """Write the agent as one executable file. The file appears whole or not at all."""
    files = {"__main__.py": _MAIN.encode(), "google/__init__.py": b""}
    for package in (*OWN, *FOREIGN):
        files |= dict(_sources(package))
    files |= dict(_step_packages())
    for name in _ALONE:
        files[name] = (_folder("remuda").parent / name).read_bytes()
    files |= dict(_compile(files))
    aside = output.with_name(output.name + ".new")
    with aside.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), files[name], zipfile.ZIP_DEFLATED)
    aside.chmod(0o755)
    aside.rename(output)


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    folder = _folder(package)
    root = package.replace(".", "/")
    for path in sorted(folder.rglob("*.py")):
        name = f"{root}/{path.relative_to(folder).as_posix()}"
        if not name.startswith(LEFT_OUT):
            yield name, path.read_bytes()


def _compile(sources: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield names and compiled modules, except `__main__`, which runs from its source. `sources`: by file name."""
    for name, source in sources.items():
        if name.endswith(".py") and name != "__main__.py":
            code = compile(source, name, "exec", dont_inherit=True, optimize=0)
            yield f"{name}c", importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code, _PLAIN)


def _step_packages() -> Iterator[tuple[str, bytes]]:
    folder = _folder("remuda.stdsteps")
    for path in sorted(folder.rglob("func.yml")):
        yield f"remuda/stdsteps/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"package {package} is not installed here, so it cannot be packed")
    return Path(spec.submodule_search_locations[0])
