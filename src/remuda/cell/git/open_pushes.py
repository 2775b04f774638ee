"""Which projects' refs may be moving right now: a file for each push, held by the process that serves it.

What a push has moved must be acted on though its process dies, and no other process has heard of it. So whoever serves
a push holds a file with the project's number in a folder that all processes of the cell share. The kernel lets go of it
when the process dies; a file that nobody holds is a push that somebody else has to act on. Nothing is decided here.
`remuda.cell.projects.projects` calls it.

Invariant: the file has its name before any ref moves, and loses it only when the push was acted on.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from remuda.cell.errors import StoreError
from remuda.lib.files import InUseError, sole_use
from remuda.model.job import ProjectId


class OpenPushes:
    """The pushes that a cell's processes serve."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def begun(self, project_id: ProjectId) -> Iterator[Callable[[], None]]:
        """Hold a file for a push to this project; what is given says that the push was acted on."""
        name = f"{int(project_id)}-{secrets.token_hex(8)}"
        file, aside = self._folder / name, self._folder / f".{name}"
        with ExitStack() as stack:
            try:
                stack.enter_context(sole_use(aside))
                # Only now, so that nobody takes it for one that was left.
                aside.rename(file)
            except OSError as error:
                said = f"a push cannot be noted: {error.strerror or error}; check the disk of the data folder"
                raise StoreError(said) from error
            yield lambda: file.unlink(missing_ok=True)

    def left(self) -> dict[str, ProjectId]:
        """The pushes that nobody serves any more, with their projects."""
        found = {}
        for file in sorted(self._folder.iterdir()):
            number = file.name.partition("-")[0]
            try:
                if number.isdigit():
                    with sole_use(file):
                        found[file.name] = ProjectId(int(number))
            except InUseError:
                continue
        return found

    def forget(self, name: str) -> None:
        """This one was acted on."""
        (self._folder / name).unlink(missing_ok=True)
