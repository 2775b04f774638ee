"""Fetches the files of other projects that child pipelines include, before the run starts: its cell compiles them when
their trigger jobs start, and then has only what was uploaded. A child pipeline is compiled here with the variables that
are known; mistakes are left to the cell, but a file that cannot be fetched is reported at once."""

import json
import sys
from typing import TYPE_CHECKING

import msgspec

from remuda.pipeline import PipelineError, compile_pipeline

if TYPE_CHECKING:
    from remuda.localrun.compilation import PipelineFile
    from remuda.pipeline import Facts, JobSpec, Pipeline

_MOST_LEVELS = 2


def fetch_for_children(file: "PipelineFile", pipeline: "Pipeline") -> None:
    """Fetch what the child pipelines of `pipeline` include, and those of these. Prints a warning for each file that is
    not available."""
    _fetch(file, pipeline, file.facts, level=1)


def _fetch(file: "PipelineFile", pipeline: "Pipeline", facts: "Facts", *, level: int) -> None:
    for job in pipeline.jobs:
        # Files from artifacts exist only later.
        if job.trigger is None or not job.trigger.include or any("artifact" in each for each in job.trigger.include):
            continue
        child_facts = msgspec.structs.replace(
            facts, source="parent_pipeline", variables={**facts.variables, **job.variables}
        )
        file.sources.problems.clear()
        try:
            child = compile_pipeline(_text(job), file=job.name, facts=child_facts, sources=file.sources)
        except PipelineError:
            for problem in file.sources.problems:
                text = f"{problem.reason}; {problem.suggestion}"
                print(f"remuda: WARNING: the child pipeline of {job.name} will fail: {text}", file=sys.stderr)
            continue
        if level < _MOST_LEVELS:
            _fetch(file, child, child_facts, level=level + 1)


def _text(job: "JobSpec") -> str:
    assert job.trigger is not None
    inputs = job.trigger.inputs
    entries = [
        {**each, "inputs": {**inputs, **each.get("inputs", {})}} if inputs else each for each in job.trigger.include
    ]
    return json.dumps({"include": entries})
