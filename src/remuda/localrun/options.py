"""The options of `remuda run` and of commands that compile a pipeline file, as plain data classes. `remuda.cli.options`
and `remuda.cli.run` derive classes with help texts from these for the command line parser, and
`remuda.localrun.settings` derives the keys of settings files. Imports only fast modules: `remuda run` without arguments
starts from these defaults, without a parser."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from remuda.localrun.isolation import IsolationChoice


def setting(
    *, key: str = "", is_safe: bool = False, adds_up: bool = False, is_assignment: bool = False, variable: str = ""
) -> dict[str, Any]:
    """Return the metadata of an option that is more than its default. `key`: its name in settings files and on the
    command line [default: the field's name with dashes]. `is_safe`: the settings file of a repository may set it, and
    not only the user's own, because it gives a foreign repository nothing that its pipeline file does not give it; a
    path must then lie in the repository. `adds_up`: values of several places are joined, instead of the strongest
    winning. `is_assignment`: each value has the form NAME=VALUE, and settings files may have a table. `variable`: the
    environment variable that sets it."""
    return {
        "key": key,
        "is_safe": is_safe,
        "adds_up": adds_up,
        "is_assignment": is_assignment,
        "variable": variable,
    }


class Options:
    """A base of data classes whose instances know which of their fields were set, even if to the default."""

    __slots__ = ("given",)

    given: frozenset[str]
    """Names of the fields that were passed when the instance was created: those that the command line set."""

    def __new__(cls, **values: object) -> Self:
        options = object.__new__(cls)
        object.__setattr__(options, "given", frozenset(values))
        return options

    def change(self, **values: object) -> Self:
        """Return a copy with other values, which count as given; what else was given stays so."""
        changed: Any = replace(self, **values)  # type: ignore[type-var]
        object.__setattr__(changed, "given", self.given | values.keys())
        return changed  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions(Options):
    """Options about compiling a pipeline file: the event, ref, variables and inputs to compile it for."""

    file: Path | None = field(default=None, metadata=setting(is_safe=True))
    event: str = field(default="push", metadata=setting(is_safe=True))
    ref: str | None = field(default=None, metadata=setting(is_safe=True))
    tag: str | None = field(default=None, metadata=setting(is_safe=True))
    variable: tuple[str, ...] = field(default=(), metadata=setting(is_safe=True, adds_up=True, is_assignment=True))
    variables_file: tuple[Path, ...] = field(default=(), metadata=setting(is_safe=True, adds_up=True))
    secrets_file: tuple[Path, ...] = field(default=(), metadata=setting(adds_up=True))
    inputs: tuple[str, ...] = field(
        default=(), metadata=setting(key="input", is_safe=True, adds_up=True, is_assignment=True)
    )
    project: tuple[str, ...] = field(default=(), metadata=setting(adds_up=True, is_assignment=True))
    server: str = ""
    allow_fetch: tuple[str, ...] = field(default=(), metadata=setting(adds_up=True))
    allow_remote: tuple[str, ...] = field(default=(), metadata=setting(adds_up=True))
    templates: str = field(default="", metadata=setting(variable="REMUDA_TEMPLATES"))


ContainersChoice = Literal["auto", "always", "never"]
"""Which jobs run in containers: those that name an image or services, all, or none."""
DEFAULT_IMAGE = "ruby:3.1"
"""The image of jobs that run in a container and name none; GitLab.com's hosted runners use the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Options):
    """Options about running the pipeline: which jobs run, how results are shown, and which files are kept."""

    job: tuple[str, ...] = field(default=(), metadata=setting(is_safe=True))
    stage: tuple[str, ...] = field(default=(), metadata=setting(is_safe=True))
    no_needs: bool = field(default=False, metadata=setting(is_safe=True))
    list_only: bool = field(default=False, metadata=setting(key="list", is_safe=True))
    watch: bool = field(default=False, metadata=setting(is_safe=True))
    manual: tuple[str, ...] = field(default=(), metadata=setting(is_safe=True, adds_up=True))
    play_manual: bool = field(default=False, metadata=setting(is_safe=True))
    jobs: int | None = field(default=None, metadata=setting(is_safe=True))
    output: Literal["text", "json"] = field(default="text", metadata=setting(is_safe=True))
    follow: bool = field(default=False, metadata=setting(is_safe=True))
    logs: bool = field(default=False, metadata=setting(is_safe=True))
    artifacts: Path | None = field(default=None, metadata=setting(is_safe=True))
    no_cache: bool = field(default=False, metadata=setting(is_safe=True))
    cache_dir: Path | None = None
    data: Path | None = None
    keep: bool = field(default=False, metadata=setting(is_safe=True))
    shell_on_failure: bool = False
    isolation: IsolationChoice = "auto"
    containers: ContainersChoice = "auto"
    image: str = field(default=DEFAULT_IMAGE, metadata=setting(is_safe=True))
