"""The step `function/oci/build`: writes the image of a function (step) to an archive, which `function/oci/publish` or
another program can publish."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from remuda.lib.clock import stamp
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.function_images.layout import build_archive


def run(inputs: Inputs) -> None:
    version, name = inputs.text("version"), inputs.text("archive", "function-image.tar")
    common, platforms = inputs.mapping("common"), inputs.mapping("platforms")
    inputs.done()
    root = Path.cwd()
    archive = root / name
    if not name or not Path(os.path.realpath(archive.parent)).is_relative_to(os.path.realpath(root)):
        raise StepError(f"input archive: {name!r} must be a path in the working directory")
    if archive.is_dir() or archive.is_symlink():
        raise StepError(f"input archive: {name!r} is a folder or a link")
    with tempfile.TemporaryDirectory(dir=os.environ.get("REMUDA_TEMPORARY")) as work:
        digest = build_archive(
            archive,
            root,
            version=version,
            common=read_files(common, "common"),
            platforms={str(key): read_files(value, f"platforms.{key}") for key, value in platforms.items()},
            created=f"{stamp(time.time())[:19]}Z",
            work=Path(work),
        )
    names = ", ".join(platforms) or "all platforms"
    say(f"Wrote version {version} for {names} to {name}, {archive.stat().st_size} bytes, {digest}")
    write_outputs(archive=name, version=version, digest=digest)


def read_files(value: Any, place: str) -> dict[str, str]:
    """Return the files of `common` or of a platform: paths in the image to paths in the working directory."""
    files = value.get("files", {}) if isinstance(value, dict) else None
    is_valid = isinstance(files, dict) and all(isinstance(source, str) and source for source in files.values())
    if not is_valid or (isinstance(value, dict) and value.keys() - {"files"}):
        raise StepError(f'input {place}: must have "files", a mapping of paths in the image to paths of files here')
    return dict(files or {})
