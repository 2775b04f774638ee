"""`.gitlab-ci.yml` to a graph of jobs. Pure: text and facts in, a `Pipeline` or all mistakes of its files out.

`compile` leads and names the order. `document` reads YAML into a `tree` with places, `includes`, `inputs` and
`extending` bring everything into one tree, `rules` and `conditions` judge it against `facts`, `job` and its
neighbours decide what it means, `keywords` says which keys there are, `graph` says who waits for whom. Nothing here
opens a file or a socket: included files come through `Sources`.
"""

from remuda.pipeline.compile import compile_pipeline
from remuda.pipeline.errors import Mistake, PipelineError
from remuda.pipeline.facts import Facts, SourceProblem
from remuda.pipeline.graph import artifact_sources, prerequisites, upstream
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
    "upstream",
]
