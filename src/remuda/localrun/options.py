"""The options of `remuda run` and of commands that compile a pipeline file, as plain data classes. `remuda.cli.options`
and `remuda.cli.run` derive classes with help texts from these for the command line parser. Imports only fast modules:
`remuda run` without arguments starts from these defaults, without a parser."""

from dataclasses import dataclass
from pathlib import Path

from remuda.localrun.isolation import IsolationChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """Options about compiling a pipeline file: the event, ref, variables and inputs to compile it for."""

    file: Path | None = None
    event: str = "push"
    ref: str | None = None
    tag: str | None = None
    variable: tuple[str, ...] = ()
    variables_file: tuple[Path, ...] = ()
    inputs: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    allow_remote: tuple[str, ...] = ()
    templates: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options about running the pipeline: which jobs run, how results are shown, and which files are kept."""

    job: tuple[str, ...] = ()
    stage: tuple[str, ...] = ()
    no_needs: bool = False
    list_only: bool = False
    watch: bool = False
    manual: tuple[str, ...] = ()
    play_manual: bool = False
    jobs: int | None = None
    output: str = "text"
    logs: bool = False
    artifacts: Path | None = None
    no_cache: bool = False
    cache_dir: Path | None = None
    data: Path | None = None
    keep: bool = False
    shell_on_failure: bool = False
    isolation: IsolationChoice = "auto"
