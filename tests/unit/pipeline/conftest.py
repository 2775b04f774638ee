"""Short ways to compile a file and to see its mistakes."""

from collections.abc import Callable
from textwrap import dedent

import pytest

from remuda.pipeline import JobSpec, PipelineError, compile_pipeline

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]


@pytest.fixture
def jobs() -> Jobs:
    """Compile a text and give its jobs by name."""
    return lambda text: {job.name: job for job in compile_pipeline(dedent(text)).jobs}


@pytest.fixture
def mistakes() -> Mistakes:
    """Compile a text that is wrong and give its mistakes, one line each, without the file's name."""

    def read(text: str) -> list[str]:
        with pytest.raises(PipelineError) as caught:
            compile_pipeline(dedent(text), file="f")
        return [line.removeprefix("f:") for line in str(caught.value).splitlines()]

    return read
