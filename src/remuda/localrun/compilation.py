"""A pipeline file of a folder on this machine, ready to be compiled: the options that say how, and what they come to.

Decided here: which folder and which file are meant, and that both are read before anything else happens. The options
stand once, in `PipelineOptions`, which a command takes as one parameter. Called by `remuda pipeline` and `remuda run`.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from remuda.cli.exits import BadInputError
from remuda.cli.parameter import Parameter
from remuda.localrun.sources.snapshot import PIPELINE_FILE

if TYPE_CHECKING:
    from remuda.localrun.sources.included_files import WorkTreeSources
    from remuda.localrun.sources.repository import Repository
    from remuda.pipeline import Facts, Pipeline

LIMIT_BYTES = 1024 * 1024
_STDIN = Path("-")

Folder = Annotated[Path, Parameter(help="The repository, or any folder with a pipeline file, or such a file.")]


def _several(name: str, about: str) -> Parameter:
    return Parameter(name=name, negative=(), show_default=False, help=f"{about} May be given several times.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """For which pipeline the file is compiled."""

    file: Annotated[
        Path | None,
        # Otherwise a lone - would be taken for the next option.
        Parameter(allow_leading_hyphen=True, help="Pipeline file in place of PATH/.gitlab-ci.yml; - is stdin."),
    ] = None
    event: Annotated[
        str,
        Parameter(
            help="How the pipeline comes about: push, tag, merge_request, web, api, schedule, trigger, pipeline or "
            "parent_pipeline."
        ),
    ] = "push"
    ref: Annotated[
        str | None, Parameter(help="The branch to take the folder for [default: the one that is checked out].")
    ] = None
    tag: Annotated[str | None, Parameter(help="The tag to take the folder for.")] = None
    variable: Annotated[tuple[str, ...], _several("--variable", "A variable, NAME=VALUE.")] = ()
    variables_file: Annotated[
        tuple[Path, ...], _several("--variables-file", "Variables from a dotenv, YAML or JSON file.")
    ] = ()
    inputs: Annotated[tuple[str, ...], _several("--input", "An input of the file's header, NAME=VALUE.")] = ()
    project: Annotated[
        tuple[str, ...], _several("--project", "Where another project's files are: GROUP/NAME=FOLDER.")
    ] = ()
    allow_remote: Annotated[
        tuple[str, ...], _several("--allow-remote", "A host or address prefix that files may be included from.")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A pipeline file with all that decides what it compiles to."""

    folder: Path
    # What messages call it.
    file: str
    text: str
    facts: "Facts"
    sources: "WorkTreeSources"
    # The folder's, with what was asked about it already.
    repository: "Repository | None"
    # As given: NAME=VALUE.
    given_inputs: tuple[str, ...] = ()
    # Other projects' folders by path, and the beginnings of addresses that files may be included from.
    projects: dict[str, Path] = field(default_factory=dict)
    remotes: tuple[str, ...] = ()

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs by name; `PipelineError` if the file whose header gives them a type cannot be read."""
        from remuda.localrun.variables import read_inputs

        return read_inputs(self.given_inputs, self.text, self.file)

    @property
    def texts(self) -> dict[str, str]:
        """The files that were read so far, by the names that mistakes call them."""
        return {**self.sources.texts, self.file: self.text}

    @contextmanager
    def excerpts(self) -> Iterator[None]:
        """Turn a `PipelineError` inside into bad input that shows the lines with the mistakes."""
        from remuda.cli.render.excerpts import described
        from remuda.localrun.report import counted
        from remuda.pipeline import PipelineError

        try:
            yield
        except PipelineError as error:
            shown = "\n".join(described(error.errors, self.texts))
            raise BadInputError(f"the pipeline has {counted(len(error.errors), 'mistake')}\n{shown}") from None

    def compile(self) -> "Pipeline":
        """The pipeline; `PipelineError` with all mistakes of the file."""
        from remuda.pipeline import compile_pipeline

        return compile_pipeline(self.text, file=self.file, facts=self.facts, sources=self.sources, inputs=self.inputs)

    def merged(self) -> str:
        """The file with all its parts in one text."""
        from remuda.pipeline import merged_yaml

        return merged_yaml(self.text, file=self.file, facts=self.facts, sources=self.sources, inputs=self.inputs)

    @property
    def occasion(self) -> str:
        """The circumstances in a few words."""
        facts = self.facts
        if target := facts.predefined.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"):
            return f"a merge request of {facts.ref} into {target}"
        ref = f"tag {facts.ref}" if facts.is_tag else facts.ref
        return f"a push of {ref}" if facts.source == "push" else f"{facts.source} on {ref}"


def prepare(path: Path, options: PipelineOptions) -> Ready:
    """Read what the options name. Bad input raises `BadInputError`, which says what to do."""
    from remuda.localrun.sources.included_files import WorkTreeSources
    from remuda.localrun.sources.remote_files import read_allowed
    from remuda.localrun.sources.repository import Repository
    from remuda.localrun.sources.worktree import facts_of
    from remuda.localrun.variables import read_given

    folder, source = _places(path, options.file)
    variables = read_given(options.variable, options.variables_file)
    projects = _projects(options.project)
    allowed = read_allowed(options.allow_remote)
    text = _text(source)
    repository = Repository.at(folder)
    facts = facts_of(
        folder,
        repository=repository,
        event=options.event,
        ref=options.ref,
        tag=options.tag,
        variables=variables.values,
        raw=variables.raw,
    )
    return Ready(
        folder=folder,
        file=str(source),
        text=text,
        facts=facts,
        repository=repository,
        sources=WorkTreeSources(folder, facts, projects=projects, allowed=allowed),
        given_inputs=options.inputs,
        projects=projects,
        remotes=tuple(prefix.address for prefix in allowed),
    )


def _places(path: Path, file: Path | None) -> tuple[Path, Path]:
    """The folder, and the pipeline file as messages call it."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        raise BadInputError(f"{path}: there is no such folder") from None
    if stat.S_ISDIR(kind):
        folder, own = path.resolve(), path / PIPELINE_FILE
        # Mistakes are shown with their lines: a folder from elsewhere must not have us show another file's.
        if file is None and own.is_symlink() and not Path(os.path.realpath(own)).is_relative_to(folder):
            raise BadInputError(f"{own}: is a link that leads out of the folder; give the file with --file")
        return folder, file if file is not None else own
    if file is not None:
        raise BadInputError(f"{path}: is a file; give the folder, and --file for another pipeline file")
    from remuda.localrun.sources.repository import Repository

    around = path.resolve().parent
    repository = Repository.at(around)
    return repository.top() if repository else around, path


def _text(source: Path) -> str:
    try:
        data = sys.stdin.buffer.read(LIMIT_BYTES + 1) if source == _STDIN else _read(source)
    except FileNotFoundError:
        if above := _above(source):
            raise BadInputError(
                f"{source}: there is no pipeline file, but the repository around it has one; name that folder: {above}"
            ) from None
        raise BadInputError(
            f"{source}: there is no pipeline file; write one, or name another with --file. The smallest one:\n\n"
            '    hello:\n      script: [echo "Hello"]'
        ) from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"{source}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LIMIT_BYTES:
        raise BadInputError(f"{source}: larger than {LIMIT_BYTES} bytes; split the work over smaller pipelines")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{source}:{line}: is no UTF-8 text; save it as UTF-8") from None


def _above(source: Path) -> Path | None:
    """The repository that a folder without a pipeline file is in, if that has one."""
    from remuda.localrun.sources.repository import Repository

    folder = source.resolve().parent
    repository = Repository.at(folder) if source.name == PIPELINE_FILE and folder.is_dir() else None
    top = repository.top() if repository else None
    return top if top and top != folder and (top / PIPELINE_FILE).is_file() else None


def _read(source: Path) -> bytes:
    # A pipe that lies in the folder as its pipeline file would never end; one that is named on the command line may.
    if source.name == PIPELINE_FILE and stat.S_ISFIFO(source.stat().st_mode):
        raise ValueError("it is a pipe")
    with source.open("rb") as file:
        return file.read(LIMIT_BYTES + 1)


def _projects(given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for each in given:
        name, equals, folder = each.partition("=")
        if not equals or not name or not folder:
            raise BadInputError(f"--project {each}: write it as GROUP/NAME=FOLDER")
        if not Path(folder).is_dir():
            raise BadInputError(f"--project {each}: there is no folder {folder}; clone the project there")
        found[name.strip("/")] = Path(folder)
    return found
