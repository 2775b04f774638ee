"""`.gitlab-ci.yml` to a graph of jobs. Pure: text in, a `Pipeline` or all mistakes of the file out.

`compile` leads, `document` reads YAML with places, `job`, `variables` and `unfolding` decide what it means,
`keywords` says which keys there are, `graph` says who waits for whom. Nothing here opens a file or a socket.
"""

from remuda.pipeline.compile import compile_pipeline
from remuda.pipeline.errors import Mistake, PipelineError
from remuda.pipeline.graph import artifact_sources, prerequisites, upstream
from remuda.pipeline.spec import Artifacts, JobSpec, Need, Pipeline

__all__ = [
    "Artifacts",
    "JobSpec",
    "Mistake",
    "Need",
    "Pipeline",
    "PipelineError",
    "artifact_sources",
    "compile_pipeline",
    "prerequisites",
    "upstream",
]
