"""Reads the pipeline file of a local folder, with everything that its compilation depends on. `remuda pipeline` and
`remuda run` call `prepare` before anything else."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.lib.exits import BadInputError
from remuda.localrun.options import PipelineOptions
from remuda.localrun.settings.files import load_settings
from remuda.localrun.settings.places import FOUND_SECRETS, project_folder
from remuda.localrun.sources.snapshot import PIPELINE_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.localrun.sources.included_files import WorkTreeSources
    from remuda.localrun.sources.repository import Repository
    from remuda.localrun.variables.secrets import Secret
    from remuda.pipeline import Facts, Pipeline

LIMIT_BYTES = 1024 * 1024
NEEDS_LIMIT = "REMUDA_NEEDS_LIMIT"
"""The environment variable with the cell's setting `needs_limit`."""
_STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class PipelineFile:
    """A pipeline file with what its compilation needs: included files, inputs, facts for rules (event, ref…)."""

    folder: Path
    name: str
    """The file's path, as messages show it."""
    text: str
    facts: "Facts"
    sources: "WorkTreeSources"
    repository: "Repository | None"
    """The folder's repository, which caches answers of git."""
    secrets: "Mapping[str, Secret]"
    """Variables that jobs get as masked variables of the project; those that other variables replace are left out."""
    masked_values: frozenset[str] = frozenset()
    """The values of all secrets that can be masked, also of those that other variables replace."""
    input_assignments: tuple[str, ...] = ()
    """`NAME=VALUE` each."""

    @property
    def projects(self) -> dict[str, Path]:
        """Local clones of other projects by project path; after compiling, also those that were fetched for it."""
        return self.sources.projects

    @property
    def inputs(self) -> dict[str, Any]:
        """The values of `--input` by name, with the types that the file's `spec` header declares. Raises
        `BadInputError` for an invalid option, `PipelineError` if the file or a list value is not valid YAML."""
        from remuda.localrun.variables.assignments import read_inputs

        return read_inputs(self.input_assignments, self.text, self.name)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all files that were read so far, by the file names that error messages use."""
        return {**self.sources.texts, self.name: self.text}

    def mask_output(self) -> None:
        """Mask the secrets in everything that this process prints from now on."""
        if self.masked_values:
            from remuda.localrun.variables.masked_output import mask_output

            mask_output(self.masked_values)

    @contextmanager
    def excerpts(self) -> Iterator[None]:
        """Convert a `PipelineError` of the `with` block to a `BadInputError` that shows the lines with the mistakes."""
        from remuda.localrun.render.excerpts import describe_mistakes
        from remuda.localrun.render.words import plural
        from remuda.pipeline import PipelineError

        try:
            yield
        except PipelineError as error:
            lines = "\n".join(describe_mistakes(error.errors, self.texts))
            raise BadInputError(f"the pipeline has {plural(len(error.errors), 'mistake')}\n{lines}") from None

    def compile(self) -> "Pipeline":
        """Compile the file. Raises `PipelineError` with all mistakes of the file."""
        from remuda.pipeline import compile_pipeline

        return compile_pipeline(self.text, file=self.name, facts=self.facts, sources=self.sources, inputs=self.inputs)

    def compile_and_warn(self) -> "Pipeline":
        """Compile the file and print its warnings to standard error. Raises `BadInputError` if it has mistakes, with
        the lines of the file."""
        from remuda.localrun.render.excerpts import describe_mistakes

        with self.excerpts():
            pipeline = self.compile()
        for line in describe_mistakes(pipeline.warnings, self.texts, severity="warning"):
            print(line, file=sys.stderr)
        return pipeline

    def merge_yaml(self) -> str:
        """Return the file with everything that it includes, as one YAML text."""
        from remuda.pipeline import merge_yaml

        return merge_yaml(self.text, file=self.name, facts=self.facts, sources=self.sources, inputs=self.inputs)

    @property
    def occasion(self) -> str:
        """The event and the ref as a phrase for messages, such as `a push of main`."""
        facts = self.facts
        if target := facts.predefined.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"):
            return f"a merge request of {facts.ref} into {target}"
        ref = f"tag {facts.ref}" if facts.is_tag else facts.ref
        return f"a push of {ref}" if facts.source == "push" else f"{facts.source} on {ref}"


def prepare(path: Path, options: PipelineOptions, *, warns: bool = True) -> PipelineFile:
    """Read the pipeline file and everything else that the options name. `path`: a folder or a pipeline file. `warns`:
    print warnings about secrets. Raises `BadInputError` if an option is invalid or a file cannot be read."""
    import msgspec

    from remuda.localrun.sources.included_files import WorkTreeSources
    from remuda.localrun.sources.project_fetch import (
        ProjectFetcher,
        read_allowed_projects,
        read_server,
        server_of_origin,
    )
    from remuda.localrun.sources.remote_files import read_allowed, read_template_source
    from remuda.localrun.sources.repository import Repository
    from remuda.localrun.sources.worktree import facts_of
    from remuda.localrun.variables.assignments import read_variable_options

    folder, source = _locate(find_project(path, options.file), options.file)
    variables = read_variable_options(options.variable, options.variables_file)
    found = _read_secrets(options.secrets_file, path, warns=warns)
    secrets = {name: secret for name, secret in found.items() if name not in variables.values}
    masked = frozenset(secret.value for secret in found.values() if not secret.mask_problem)
    if masked:
        from remuda.localrun.variables.secrets import Secret

        # The value of a secret is one under any name, whoever gives it.
        secrets |= {name: Secret(value) for name, value in variables.values.items() if value in masked}
    projects = _read_projects(options.project)
    allowed = read_allowed(options.allow_remote)
    allowed_projects, server = read_allowed_projects(options.allow_fetch), read_server(options.server)
    templates = read_template_source(options.templates)
    text = _read_text(source)
    repository = Repository.at(folder)
    facts = facts_of(
        folder,
        repository=repository,
        event=options.event,
        ref=options.ref,
        tag=options.tag,
        variables={**{name: secret.value for name, secret in secrets.items()}, **variables.values},
        raw=variables.raw | secrets.keys(),
    )
    facts = msgspec.structs.replace(facts, needs_limit=_read_needs_limit(os.environ.get(NEEDS_LIMIT, "")))
    return PipelineFile(
        folder=folder,
        name=str(source),
        text=text,
        facts=facts,
        repository=repository,
        sources=WorkTreeSources(
            folder,
            facts,
            projects=projects,
            fetcher=ProjectFetcher(server or server_of_origin(repository), allowed=allowed_projects),
            allowed=allowed,
            templates=templates,
        ),
        secrets=secrets,
        masked_values=masked,
        input_assignments=options.inputs,
    )


def prepare_with_settings(path: Path, options: PipelineOptions, *, warns: bool = True) -> PipelineFile:
    """Read the pipeline file as `prepare`, for options of which settings files may set those that are not given, and
    mask its secrets in the output of this process."""
    settings = load_settings(path)
    file = prepare(settings.find_path(options), settings.apply(options), warns=warns)
    file.mask_output()
    return file


def _read_secrets(files: tuple[Path, ...], path: Path, *, warns: bool) -> "Mapping[str, Secret]":
    folder = project_folder(path)
    if not files and not os.path.lexists(folder / FOUND_SECRETS):
        return {}
    from remuda.localrun.variables.secrets import read_secrets

    return read_secrets(files, folder, warns=warns)


def _locate(path: Path, file: Path | None) -> tuple[Path, Path]:
    """Return the project's folder and the path of the pipeline file. `file`: the value of `--file`. Raises
    BadInputError if `path` does not exist, is a file although `file` is set, or its pipeline file is a link out of the
    folder."""
    try:
        kind = os.stat(path).st_mode
    except (OSError, ValueError):
        raise BadInputError(f"{path}: there is no such folder") from None
    if stat.S_ISDIR(kind):
        folder, own = path.resolve(), path / PIPELINE_FILE
        # Mistakes are shown with their lines: a link in a foreign folder must not make us print another file.
        if file is None and own.is_symlink() and not Path(os.path.realpath(own)).is_relative_to(folder):
            raise BadInputError(f"{own}: is a link that leads out of the folder; give the file with --file")
        return folder, file if file is not None else own
    if file is not None:
        raise BadInputError(f"{path}: is a file; give the folder, and --file for another pipeline file")
    from remuda.localrun.sources.repository import Repository

    parent = path.resolve().parent
    repository = Repository.at(parent)
    return repository.top() if repository else parent, path


def _read_needs_limit(text: str) -> int:
    """Read REMUDA_NEEDS_LIMIT; the default if it is empty. Raises BadInputError if it is no number."""
    from remuda.pipeline.facts import DEFAULT_NEEDS_LIMIT

    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadInputError(f"{NEEDS_LIMIT} {text}: must be a number of at least 0")
    return int(text) if text else DEFAULT_NEEDS_LIMIT


def _read_text(source: Path) -> str:
    try:
        data = sys.stdin.buffer.read(LIMIT_BYTES + 1) if source == _STDIN else _read_bytes(source)
    except FileNotFoundError:
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
        raise BadInputError(f"{source}:{line}: is not UTF-8 text; save it as UTF-8") from None


def find_project(path: Path, file: Path | None) -> Path:
    """Return the folder or file whose pipeline is meant: for a subfolder of a repository without a pipeline file of its
    own, the top folder of the repository, if that has one, after saying so on stderr; else `path`. `file`: the value of
    `--file`, with which `path` is always meant."""
    from remuda.localrun.sources.repository import Repository

    if file is not None or not path.is_dir() or os.path.lexists(path / PIPELINE_FILE):
        return path
    folder = path.resolve()
    repository = Repository.at(folder)
    top = repository.top() if repository else folder
    if top == folder or not (top / PIPELINE_FILE).is_file():
        return path
    print(f"remuda: {path} has no {PIPELINE_FILE}; using the repository around it: {top}", file=sys.stderr)
    return top


def _read_bytes(source: Path) -> bytes:
    # Reading a FIFO in the place of the folder's pipeline file would block; one named on the command line is meant.
    if source.name == PIPELINE_FILE and stat.S_ISFIFO(source.stat().st_mode):
        raise ValueError("it is a pipe")
    with source.open("rb") as file:
        return file.read(LIMIT_BYTES + 1)


def _read_projects(assignments: tuple[str, ...]) -> dict[str, Path]:
    projects: dict[str, Path] = {}
    for text in assignments:
        name, equals, folder = text.partition("=")
        if not equals or not name or not folder:
            raise BadInputError(f"--project {text}: write it as GROUP/NAME=FOLDER")
        if not Path(folder).is_dir():
            raise BadInputError(f"--project {text}: there is no folder {folder}; clone the project there")
        projects[name.strip("/")] = Path(folder)
    return projects
