"""Options that several commands share, with their help texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from remuda.lib.exits import BadInputError
from remuda.localrun.isolation import OPTION, IsolationChoice
from remuda.localrun.options import PipelineOptions

Data = Annotated[Path | None, Parameter(help="Folder for everything that is kept [default: the user's data folder].")]
Output = Annotated[Literal["text", "json"], Parameter(help="What to print: text for people, json for programs.")]
Isolate = Annotated[
    IsolationChoice,
    Parameter(
        name=OPTION,
        help="How jobs are kept from the platform's own files: with bubblewrap, as another user (if you are root), or "
        "not at all; auto: the first of these that works here.",
    ),
]
Url = Annotated[str | None, Parameter(help="Address of the cell [default: REMUDA_URL, or what `remuda up` stored].")]
Folder = Annotated[Path, Parameter(help="The repository, or any folder with a pipeline file, or such a file.")]


def repeatable(name: str, about: str) -> Parameter:
    return Parameter(name=name, negative=(), show_default=False, help=f"{about} May be given several times.")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineArguments(PipelineOptions):
    """`PipelineOptions` with help texts, for a command to take as one parameter."""

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
    variable: Annotated[tuple[str, ...], repeatable("--variable", "A variable, NAME=VALUE.")] = ()
    variables_file: Annotated[
        tuple[Path, ...], repeatable("--variables-file", "Variables from a dotenv, YAML or JSON file.")
    ] = ()
    inputs: Annotated[tuple[str, ...], repeatable("--input", "An input of the file's header, NAME=VALUE.")] = ()
    project: Annotated[
        tuple[str, ...], repeatable("--project", "Where another project's files are: GROUP/NAME=FOLDER.")
    ] = ()
    allow_remote: Annotated[
        tuple[str, ...], repeatable("--allow-remote", "A host or address prefix that files may be included from.")
    ] = ()


NO_PIPELINE_ARGUMENTS = PipelineArguments()


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInputError(f"--listen {text}: not an address; write HOST:PORT, for example 127.0.0.1:8929")
    return host.removeprefix("[").removesuffix("]"), int(port)
