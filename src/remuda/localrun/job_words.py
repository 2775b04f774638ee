"""Decides what the first words of `remuda run` mean: `remuda run FOLDER [JOB ...]` or `remuda run JOB ...`.

A word that is no file or folder is a job. A word that is both a job and a folder means the folder if it has a pipeline
file of its own, else the job; the command says which. `./NAME` always means the folder, `--job NAME` the job."""

import sys
from collections.abc import Iterable
from pathlib import Path

from remuda.lib.exits import BadInputError
from remuda.localrun.compilation import find_project, prepare_with_settings
from remuda.localrun.options import PipelineOptions
from remuda.localrun.settings.files import load_settings
from remuda.localrun.sources.snapshot import PIPELINE_FILE

_HERE = Path(".")
_PIPELINE_SUFFIXES = (".yml", ".yaml")


def split_words(word: str, jobs: tuple[str, ...], pipeline: PipelineOptions) -> tuple[Path, tuple[str, ...]]:
    """Return the folder or file to run, and the names of jobs. `word`: the first word; `jobs`: those after it. Raises
    BadInputError if it can mean nothing."""
    path = Path(word)
    if word.startswith(("/", "./", "../", "~")) or word.endswith("/") or word in ("", ".", ".."):
        return path, jobs
    if not path.exists():
        if not _has_pipeline_here(pipeline):
            near = suggest_folders([word])
            reason = f"and no job, because this folder has no {PIPELINE_FILE}"
            raise BadInputError(f"{word}: there is no such folder{near}, {reason}")
        return _HERE, (word, *jobs)
    is_folder = path.is_dir()
    has_own_file = (path / PIPELINE_FILE).exists() if is_folder else path.suffix in _PIPELINE_SUFFIXES
    if word not in _jobs_here(pipeline):
        return path, jobs
    kind = "folder" if is_folder else "file"
    if has_own_file:
        _say(f"there are a {kind} and a job {word}; using the {kind}, which has a pipeline; for the job: --job {word}")
        return path, jobs
    _say(f"there are a {kind} and a job {word}; running the job; for the {kind}: ./{word}")
    return _HERE, (word, *jobs)


def suggest_folders(words: Iterable[str]) -> str:
    """Return the end of an error message: folders with names similar to one of the words; '' without any."""
    from difflib import get_close_matches  # imported only for a mistake

    folders = sorted(path.name for path in _HERE.iterdir() if path.is_dir())
    near = dict.fromkeys(name for word in words for name in get_close_matches(word, folders, n=1))
    return f" (similar: {', '.join(f'./{name}' for name in near)})" if near else ""


def _say(text: str) -> None:
    print(f"remuda: {text}", file=sys.stderr)


def _has_pipeline_here(pipeline: PipelineOptions) -> bool:
    options = load_settings(_HERE).apply(pipeline)
    return options.file is not None or (find_project(_HERE, None) / PIPELINE_FILE).exists()


def _jobs_here(pipeline: PipelineOptions) -> set[str]:
    """Return the names of the jobs in the pipeline of the current folder; none if it has no valid one."""
    from remuda.pipeline import PipelineError

    try:
        if load_settings(_HERE).apply(pipeline).file is None and not (_HERE / PIPELINE_FILE).exists():
            return set()
        # The run itself prints the warnings.
        compiled = prepare_with_settings(_HERE, pipeline, warns=False).compile()
    except (BadInputError, PipelineError):
        return set()
    names = {name for job in compiled.jobs for name in (job.name, job.written_name) if name}
    return names | {job.name for job in compiled.left_out}
