"""Options that several commands share, with their help texts."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from remuda.lib.exits import BadInputError
from remuda.localrun.isolation import OPTION, IsolationChoice
from remuda.localrun.options import ContainersChoice, PipelineOptions

Data = Annotated[Path | None, Parameter(help="Data folder [default: the user's data folder].")]
OUTPUT = ("--output", "-o")
Output = Annotated[Literal["text", "json"], Parameter(name=OUTPUT, help="Format of the output.")]
Isolate = Annotated[
    IsolationChoice,
    Parameter(
        name=OPTION,
        help="How the platform's own files are hidden from jobs: with bubblewrap, by another user (if "
        "you are root), or not at all (none). auto uses the first that works on this machine.",
    ),
]
Containers = Annotated[
    ContainersChoice,
    Parameter(
        help="Which jobs run in containers of Docker or Podman: those that name an image or services (auto), all, or "
        "none. Without an engine, jobs that need one fail."
    ),
]
NoContainers = Annotated[bool, Parameter(negative=(), help="The same as --containers never.")]
DefaultImage = Annotated[str, Parameter(help="Image of jobs that run in a container and name none.")]
Url = Annotated[
    str | None,
    Parameter(
        help="Address of the cell [default: the one that `remuda up` stored in --data, if that is given; REMUDA_URL; "
        "that of a profile of `remuda login`; the one that `remuda up` stored]."
    ),
]
Project = Annotated[
    str | None,
    Parameter(
        name=("--project", "-p"),
        help="Project, by path or number [default: that of the current folder, if a git remote points to the cell].",
    ),
]
Limit = Annotated[int, Parameter(name=("--limit", "-n"), help="Maximum number of entries.")]


STATUSES = (
    *("created", "waiting_for_resource", "preparing", "scheduled", "manual", "pending", "running", "canceling"),
    *("success", "failed", "canceled", "skipped"),
)
"""Statuses of jobs and pipelines that lists can be restricted to. A test compares them with those of the cell."""


def check_status(text: str | None) -> None:
    """Raise BadInputError, with the nearest status, if a value of --status has an unknown one. Commas separate them."""
    for status in (text or "").split(","):
        if status and status not in STATUSES:
            from difflib import get_close_matches

            meant = get_close_matches(status, STATUSES, 1)
            hint = f"did you mean {meant[0]}? " if meant else ""
            raise BadInputError(f"--status {status}: {hint}The statuses are {', '.join(STATUSES)}")


def check_limit(limit: int) -> None:
    if limit < 1:
        raise BadInputError(f"--limit {limit}: must be at least 1")


def check_containers(containers: ContainersChoice, *, no_containers: bool) -> None:
    """Raise BadInputError if the options are both for and against containers."""
    if no_containers and containers == "always":
        raise BadInputError("--no-containers means --containers never; give one of the two")


ConfigToml = Annotated[Path, Parameter(help="Configuration file, gitlab-runner's config.toml.", env_var="CONFIG_FILE")]
Folder = Annotated[Path, Parameter(help="The repository, any folder with a pipeline file, or the pipeline file.")]


def repeatable(name: str, about: str) -> Parameter:
    return Parameter(name=name, negative=(), show_default=False, help=f"{about} Can be repeated.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineArguments(PipelineOptions):
    """Options about compiling a pipeline file (`PipelineOptions`), with help texts, as one parameter of a command."""

    file: Annotated[
        Path | None,
        # Otherwise a lone - would be taken for the next option.
        Parameter(allow_leading_hyphen=True, help="Pipeline file instead of PATH/.gitlab-ci.yml; - is stdin."),
    ] = None
    event: Annotated[
        str,
        Parameter(
            help="The event that starts the pipeline: push, tag, merge_request, web, api, schedule, "
            "trigger, pipeline or parent_pipeline."
        ),
    ] = "push"
    ref: Annotated[
        str | None, Parameter(help="The branch of the pipeline [default: the branch that is checked out].")
    ] = None
    tag: Annotated[
        str | None, Parameter(help="The tag of the pipeline. `--event tag` without it uses a tag that points to HEAD.")
    ] = None
    variable: Annotated[
        tuple[str, ...],
        repeatable(
            "--variable", "A variable, NAME=VALUE. It wins over variables of the pipeline file and of --variables-file."
        ),
    ] = ()
    variables_file: Annotated[
        tuple[Path, ...],
        repeatable(
            "--variables-file",
            "A file with variables: dotenv, or YAML or JSON in the form of `variables` in a pipeline file.",
        ),
    ] = ()
    secrets_file: Annotated[
        tuple[Path, ...],
        repeatable(
            "--secrets-file",
            "A file with variables whose values are masked in logs: dotenv, YAML or JSON. .remuda/secrets.env in the "
            "top folder of the repository is used without this option.",
        ),
    ] = ()
    inputs: Annotated[
        tuple[str, ...],
        repeatable("--input", "An input, NAME=VALUE. It gets the type that `spec:inputs` of the file declares."),
    ] = ()
    project: Annotated[
        tuple[str, ...],
        repeatable(
            "--project", "A clone of another project for include:project and include:component, GROUP/NAME=FOLDER."
        ),
    ] = ()
    server: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Address of the git server with the projects of include:project, such as https://gitlab.example.com "
            "or git@gitlab.example.com [default: the server of the remote origin].",
        ),
    ] = ""
    allow_fetch: Annotated[
        tuple[str, ...],
        repeatable(
            "--allow-fetch",
            "A project that include:project and include:component may fetch with your git credentials, "
            "HOST/GROUP/NAME; a group, HOST/GROUP; or a whole server, HOST.",
        ),
    ] = ()
    allow_remote: Annotated[
        tuple[str, ...], repeatable("--allow-remote", "A host or address prefix from which include:remote may fetch.")
    ] = ()
    templates: Annotated[
        str,
        Parameter(
            env_var="REMUDA_TEMPLATES",
            show_default=False,
            help="Folder, or address of a GitLab server, with files for include:template. Remuda's own templates are "
            "used for those that it does not have.",
        ),
    ] = ""


NO_PIPELINE_ARGUMENTS = PipelineArguments()


def listen_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host is in brackets. Raises BadInputError if the text is no address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInputError(f"--listen {text}: not an address; write HOST:PORT, for example 127.0.0.1:8929")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Return the values NAME=VALUE of an option by name. Raises BadInputError, which names the option."""
    pairs = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            # The text may be a secret.
            raise BadInputError(f"{option}: write it as NAME=VALUE")
        pairs[name] = value
    return pairs
