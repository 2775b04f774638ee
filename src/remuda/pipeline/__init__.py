"""Compiles `.gitlab-ci.yml` to a `Pipeline`, a graph of jobs, or reports all its mistakes. Does no input or output.

`compile` is the entry point. `syntax` parses YAML into a tree of values with their positions, `include` merges all
files into one tree, `keywords` reads jobs, `rules` evaluates conditions for the given `Facts` (ref, event, variables,
files), `graph` finds which job waits for which. The caller provides included files through the interface `Sources`."""

from remuda.pipeline.compile import compile_pipeline
from remuda.pipeline.errors import Mistake, PipelineError
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.graph import artifact_sources, prerequisites
from remuda.pipeline.include.port import Component, ComponentAddress, MemorySources, Sources
from remuda.pipeline.spec import Artifacts, Environment, JobSpec, LeftOut, Need, OutsideNeed, Pipeline, Trigger
from remuda.pipeline.start_form import StartForm, read_start_form
from remuda.pipeline.syntax.merged_text import merge_yaml
from remuda.pipeline.syntax.variable_expansion import ExpansionError, expand

__all__ = [
    "Artifacts",
    "Component",
    "ComponentAddress",
    "Environment",
    "ExpansionError",
    "Facts",
    "JobSpec",
    "LeftOut",
    "MemorySources",
    "Mistake",
    "Need",
    "OutsideNeed",
    "Pipeline",
    "PipelineError",
    "SourceProblem",
    "Sources",
    "StartForm",
    "Trigger",
    "artifact_sources",
    "compile_pipeline",
    "expand",
    "merge_yaml",
    "prerequisites",
    "read_start_form",
]
