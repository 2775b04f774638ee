"""Fixtures that compile a pipeline text and return its jobs or its mistakes, and that read a case of `cases/*.yml`."""

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from remuda.pipeline import Component, Facts, JobSpec, MemorySources, PipelineError, compile_pipeline

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]
CaseArguments = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
def jobs() -> Jobs:
    """Compile a text and return its jobs by name."""
    return lambda text: {job.name: job for job in compile_pipeline(dedent(text)).jobs}


@pytest.fixture
def mistakes() -> Mistakes:
    """Compile an invalid text and return its mistakes, one line each, without the file name."""

    def read(text: str) -> list[str]:
        with pytest.raises(PipelineError) as caught:
            compile_pipeline(dedent(text), file="f")
        return [line.removeprefix("f:") for line in str(caught.value).splitlines()]

    return read


@pytest.fixture
def case_arguments() -> CaseArguments:
    """Return the arguments of `compile_pipeline` for a case of `cases/*.yml`, besides its text."""

    def read(case: dict[str, Any]) -> dict[str, Any]:
        facts = dict(case.get("facts", {}))
        if "changed_files" in facts:
            facts["changed_files"] = frozenset(facts["changed_files"])
        if "files" in facts:
            facts["files"] = {path: f"id of {path}" for path in facts["files"]}
        components = {address: Component(**each) for address, each in case.get("components", {}).items()}
        sources = MemorySources(
            case.get("files"), projects=case.get("projects"), remotes=case.get("remotes"), components=components
        )
        return {"facts": Facts(**facts), "sources": sources, "inputs": case.get("inputs")}

    return read
