"""Compiles `.gitlab-ci.yml` to a graph of jobs. Pure: text and facts in, a `Pipeline` or all mistakes out.

`compile` is the entry. `syntax` reads YAML into a tree with places, `include` brings all files into one tree,
`keywords` reads jobs, `rules` evaluates conditions for the `Facts`, `graph` finds which job waits for which. Included
files come through the port `Sources`.
"""

from remuda.pipeline.compile import compile_pipeline
from remuda.pipeline.errors import Mistake, PipelineError
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.graph import artifact_sources, prerequisites
from remuda.pipeline.include.sources import Component, ComponentAddress, MemorySources, Sources
from remuda.pipeline.spec import Artifacts, Environment, JobSpec, LeftOut, Need, OutsideNeed, Pipeline, Trigger
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
    "Trigger",
    "artifact_sources",
    "compile_pipeline",
    "expand",
    "merge_yaml",
    "prerequisites",
]
