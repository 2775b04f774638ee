"""Installs versions of plugins into the plugin folder: from a registry, or from a file. All functions block.

In a registry a plugin is an image for each platform; the layer with its files has an annotation that names the version,
as GitLab publishes plugins. Installation is atomic. `install_file` refuses a file whose version is installed with other
content, unless `is_replacing` is set. The caller's registry client checks digests, and its unpacker refuses malicious
archives."""

import filecmp
import os
import platform as machine
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.plugin_search import PREFIX, PROGRAM, version_folder, versions
from remuda.fleeting.program_info import ProgramInfo, ask_version
from remuda.fleeting.references import Reference, Version, parse_reference, parse_version, version_of_folder
from remuda.lib.dataclass import dataclass
from remuda.lib.files import sync_folder
from remuda.lib.safe_paths import remove_tree
from remuda.plugins.exec_plugin import read_interpreter
from remuda.plugins.programs import is_program

MARK = "com.gitlab.fleeting.layer"
LARGEST_BYTES = 1024**3
OLD_SECONDS = 24 * 3600.0
_TEMPORARY = ".install-"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i686": "386"}
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_PLACES = ("plugin", "Files/plugin", ".")
"""Where the files of a plugin can be in a layer or archive."""


class Source(Protocol):
    """Client of one repository in an OCI registry. If a download fails, methods raise TemporaryError if a retry may
    help, otherwise PermanentError."""

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        """Return the manifest of a tag or digest as decoded JSON, and its digest."""

    def blob(self, digest: str, size: int, target: Path) -> None:
        """Download a blob to the file `target`, and check its size and digest."""


Unpack = Callable[[Path, Path], None]
"""Unpacks an archive into a new folder, and never outside of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed version of a plugin. `is_new`: it was not installed before."""

    reference: Reference
    version: Version
    program: Path
    is_new: bool


def this_platform() -> tuple[str, str, str]:
    """System, architecture and variant of this machine, with Go's names (linux, amd64, "")."""
    name = machine.machine().lower()
    if name.startswith("armv"):
        return sys.platform, "arm", name[3:5]
    return sys.platform, _MACHINES.get(name, name), ""


def choose_image(document: Mapping[str, Any], target: tuple[str, str, str]) -> Mapping[str, Any]:
    """The entry of an OCI image index (`document`) for the platform `target`: system, architecture, variant ("": any).
    Raises PermanentError, which lists the available platforms, if there is none."""
    available: set[str] = set()
    for entry in _entries(document, "manifests"):
        platform = entry.get("platform")
        platform = platform if isinstance(platform, Mapping) else {}
        system, architecture, variant = (str(platform.get(key, "")) for key in ("os", "architecture", "variant"))
        if (system, architecture) == target[:2] and (not target[2] or variant in ("", target[2])):
            return entry
        available.add("/".join(part for part in (system, architecture, variant) if part))
    name = "/".join(part for part in target if part)
    platforms = ", ".join(sorted(available)) or "none"
    raise PermanentError(f"there is nothing for this machine ({name}), only for: {platforms}")


def choose_layer(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Version]:
    """The layer of an OCI manifest that has the plugin, and the plugin's version. Raises PermanentError if there is no
    such layer, or its version or size is invalid."""
    for layer in _entries(document, "layers"):
        marks = layer.get("annotations")
        if isinstance(marks, Mapping) and MARK in marks:
            version = parse_version(str(marks[MARK]))
            if version is None:
                raise PermanentError(f"its version is {str(marks[MARK])!r}, which is not a version such as 1.2.3")
            size = layer.get("size")
            if not isinstance(size, int) or not 0 < size <= LARGEST_BYTES:
                raise PermanentError(f"it has {size!r} bytes; more than {LARGEST_BYTES} are not accepted")
            return layer, version
    raise PermanentError(f"it is no plugin: none of its layers has the annotation {MARK}")


def install(
    reference: Reference, source: Source, unpack: Unpack, folder: Path, *, say: Callable[[str], None]
) -> Installed:
    """Install the registry's version for the reference's constraint into `folder`, unless it is installed. `unpack`
    extracts the archive, `say` gets progress messages. Raises PermanentError if there is none for this machine."""
    document, _ = source.manifest(reference.constraint.text)
    try:
        if "manifests" in document:
            document, _ = source.manifest(str(choose_image(document, this_platform()).get("digest", "")))
        layer, version = choose_layer(document)
    except PermanentError as error:
        raise PermanentError(f"{reference.text}: {error}") from error
    if not reference.constraint.fits(version):
        raise PermanentError(
            f"{reference.text}: the registry gives {version.text}, which does not fit; ask for the version itself"
        )
    if version in versions(reference, folder):
        return _describe_installed(reference, version, folder, is_new=False)
    with _work_folder(folder) as work:
        say(f"{reference.place} {version.text}: fetching {layer['size'] / 1e6:.1f} MB")
        source.blob(str(layer.get("digest", "")), layer["size"], work / "layer")
        unpack(work / "layer", work / "files")
        return put(_plugin_in(work / "files"), reference, version, folder)


def install_file(
    file: Path, unpack: Unpack, folder: Path, *, say: Callable[[str], None], is_replacing: bool = False
) -> Installed:
    """Install a program or archive under the name and version that it reports. `is_replacing`: replace an installed one
    of that version with other content; else PermanentError, as for a file that is no plugin."""
    if file.is_dir():
        raise PermanentError(f"{file} is a folder; give the program in it, or an archive with it")
    if not file.is_file():
        raise PermanentError(f"{file}: there is no such file; give a program, or an archive with one in it")
    with _work_folder(folder) as work:
        files = work / "files"
        if file.name.endswith(_ARCHIVES):
            unpack(Path(shutil.copy(file, work)), files)
            files = _plugin_in(files)
        else:
            if not is_program(file):
                raise PermanentError(
                    f"{file} is neither an archive ({', '.join(_ARCHIVES)}) nor may it be executed; "
                    "chmod +x it if it is the program"
                )
            copy_program(file, files)
        info = _ask_version(files / PROGRAM, file)
        version = parse_version(info.version)
        if version is None:
            raise PermanentError(
                f"{file} says that its version is {info.version!r}; only versions such as 1.2.3 can be installed"
            )
        reference = parse_reference(f"{info.name}:{version.text}")
        target = version_folder(reference, version, folder)
        if is_program(target / PROGRAM):
            if _is_same(files, target):
                return _describe_installed(reference, version, folder, is_new=False)
            if not is_replacing:
                what = f"{reference.place} {version.text} is installed with other content ({target / PROGRAM})"
                raise PermanentError(f"{what}; raise the version, or use --replace")
            target.rename(work / "old")
        say(f"{reference.place} {version.text}: from {file}")
        return put(files, reference, version, folder)


def looks_like_file(name: str) -> bool:
    """True if `name`, which contains no `/`, is the name of a file and not of a plugin: ends like an archive (.tar,
    .tar.gz, .tgz, .zip) or starts with `fleeting-plugin-`."""
    return name.endswith((*_ARCHIVES, ".zip")) or name.startswith(PREFIX)


def copy_program(program: Path, target: Path) -> None:
    """Copy a plugin's program into the new folder `target`. The rest of the program's folder is copied, too, but only
    if it belongs to the plugin (`plugin/plugin`, `1.2.3/plugin`): another folder may have unrelated private files."""
    folder = program.absolute().parent.name
    if program.name == PROGRAM and (folder == PROGRAM or version_of_folder(folder) is not None):
        shutil.copytree(program.parent, target)
    else:
        target.mkdir()
        shutil.copy2(program, target / PROGRAM)


def put(files: Path, reference: Reference, version: Version, folder: Path) -> Installed:
    """Install a plugin by moving its folder `files` into the plugin folder `folder` on the same file system, as
    `reference` and `version`. If that is installed already, moves nothing, and the result's `is_new` is false."""
    target = version_folder(reference, version, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not is_program(target / PROGRAM):
        remove_tree(target)  # left by an installer that was killed
    for path in (path for path in files.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    files.chmod(0o755)
    try:
        files.rename(target)
    except OSError:
        if not is_program(target / PROGRAM):
            raise
        return _describe_installed(reference, version, folder, is_new=False)  # another installer was faster
    sync_folder(target.parent)
    return _describe_installed(reference, version, folder, is_new=True)


def _ask_version(program: Path, file: Path) -> ProgramInfo:
    try:
        return ask_version(program, named=file)
    except PermanentError as error:
        if "python" not in read_interpreter(str(program)):
            raise
        raise PermanentError(f"{error} A plugin in Python is installed with pip, which brings its modules") from error


def _is_same(first: Path, second: Path) -> bool:
    """True if two folders have files with the same names and contents."""
    names = [{path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} for folder in (first, second)]
    return names[0] == names[1] and all(filecmp.cmp(first / name, second / name, shallow=False) for name in names[0])


def _describe_installed(reference: Reference, version: Version, folder: Path, *, is_new: bool) -> Installed:
    program = version_folder(reference, version, folder) / PROGRAM
    return Installed(reference=reference, version=version, program=program, is_new=is_new)


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder inside the plugin folder `folder`: on the same file system, so that a rename installs
    its files. Before that, remove such folders that killed installers left more than a day ago."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{_TEMPORARY}*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > OLD_SECONDS:
                remove_tree(old, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=folder))
    try:
        yield work
    finally:
        remove_tree(work, ignore_errors=True)


def _plugin_in(files: Path) -> Path:
    """Return the plugin's folder in an unpacked archive, with the program renamed to `plugin`. Raises PermanentError if
    the archive has no program, or has a symbolic link."""
    for path in files.rglob("*"):
        if path.is_symlink():
            raise PermanentError(f"the archive has a link, {path.relative_to(files)}; remove it from the archive")
    for place in _PLACES:
        here = files / place
        programs = [path for path in here.glob(f"{PREFIX}*") if is_program(path)] if here.is_dir() else []
        if len(programs) == 1 and not (here / PROGRAM).exists():
            programs[0].rename(here / PROGRAM)
        if is_program(here / PROGRAM):
            return here
    raise PermanentError("the archive has no executable program plugin/plugin")


def _entries(document: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    entries = document.get(key)
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
