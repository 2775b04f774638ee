"""Compiles and lints pipeline files in the style of real projects, and compares with what GitLab makes of them.

`tests/support/pipeline_corpus.py` describes the format of the corpus. Needs neither Go nor a network, and runs in
`make test`, too."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.pipeline_corpus import (
    PIPELINE_FILE,
    PROJECT,
    CorpusFile,
    Event,
    describe_job,
    describe_mistake,
    find_difference,
    read_corpus,
)

from remuda.pipeline import Mistake, Pipeline, PipelineError, compile_pipeline
from remuda.pipeline.syntax import known_keys
from remuda.pipeline.syntax.known_keys import Keys

CORPUS = read_corpus()
CASES = [
    pytest.param(file, event, id=f"{file.name} {event.event}-{number}")
    for file in CORPUS
    for number, event in enumerate(file.expectation.events or [Event()], 1)
]


def compile_file(file: CorpusFile, event: Event) -> Pipeline:
    expected = file.expectation
    return compile_pipeline(
        file.text,
        file=PIPELINE_FILE,
        facts=event.facts(expected.files),
        sources=expected.sources(),
        inputs=event.inputs,
    )


@pytest.mark.parametrize(("file", "event"), CASES)
def test_a_file_compiles_to_what_gitlab_makes_of_it(file: CorpusFile, event: Event) -> None:
    if mistakes := event.mistakes or file.expectation.mistakes:
        with pytest.raises(PipelineError) as caught:
            compile_file(file, event)
        assert [describe_mistake(each) for each in caught.value.errors] == mistakes, str(caught.value)
        return
    pipeline = compile_file(file, event)
    assert [describe_mistake(each) for each in pipeline.warnings] == file.expectation.warnings
    check_pipeline(pipeline, event)


def check_pipeline(pipeline: Pipeline, event: Event) -> None:
    assert (pipeline.skipped is not None) == event.none, pipeline.skipped
    if event.none:
        return
    if event.count is not None:
        assert len(pipeline.jobs) == event.count
        return
    assert event.jobs is not None, "the expectation has no jobs"
    expected = {name: job if isinstance(job, dict) else {"is": job} for name, job in event.jobs.items()}
    names = {job.name for job in pipeline.jobs}
    described = {job.name: describe_job(job, names) for job in pipeline.jobs}
    assert described == {name: job["is"] for name, job in expected.items()}
    for job in pipeline.jobs:
        fields = msgspec.json.decode(msgspec.json.encode(job))
        wanted = {key: value for key, value in expected[job.name].items() if key != "is"}
        assert find_difference(wanted, fields, job.name) == ""
    whole = msgspec.json.decode(msgspec.json.encode(pipeline))
    assert find_difference(event.pipeline, whole, "pipeline") == ""


def test_the_corpus_is_large_and_every_file_says_what_it_shows() -> None:
    assert len(CORPUS) >= 150
    for file in CORPUS:
        expected = file.expectation
        assert bool(expected.mistakes) != bool(expected.events), f"{file.name}: either mistakes or events"
        refused = expected.mistakes or expected.warnings or any(event.mistakes for event in expected.events)
        if refused:
            assert expected.why or expected.differs, f"{file.name}: a reason for its mistakes or warnings"
        else:
            assert not expected.why, f"{file.name}: a reason, but neither mistakes nor warnings"


@pytest.mark.parametrize("kind", [name for name, value in vars(known_keys).items() if isinstance(value, Keys)])
def test_every_keyword_occurs_in_a_file(kind: str) -> None:
    keys: Keys = getattr(known_keys, kind)
    text = "\n".join(each for file in CORPUS for each in file.texts)
    missing = [key for key in keys.works + keys.later if not re.search(rf"(?m)(^|[\s{{,\[\"-]){key}\"?:", text)]
    assert missing == []


def folder_of(file: CorpusFile, folder: Path) -> Path:
    """Write the file and what it includes to `folder`, as a user has them in a repository."""
    for path, text in {**file.expectation.files, PIPELINE_FILE: file.text}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())
    return folder


def run_remuda(*arguments: str | Path) -> tuple[int, str]:
    """Run `remuda` and return its exit code and standard output."""
    command = [sys.executable, "-m", "remuda", *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return finished.returncode, finished.stdout or finished.stderr


def options_of(event: Event) -> list[str]:
    facts = event.facts({})
    options = ["--event", {"branch": "push"}.get(event.event, event.event)]
    options += ["--tag", facts.ref] if facts.is_tag else ["--ref", facts.ref]
    return [*options, *(f"--variable={name}={value}" for name, value in event.variables.items())]


def is_plain(file: CorpusFile, event: Event) -> bool:
    """True if the command line can show the event: it depends on nothing that only a server or a history knows."""
    special = event.predefined or event.changed is not None or event.exists is not None or event.inputs
    names_project = PROJECT["CI_PROJECT_PATH"] in file.text
    return file.expectation.is_local and not special and not names_project and not event.mistakes


VALID = [
    pytest.param(file, file.expectation.events[0], id=file.name)
    for file in CORPUS
    if file.expectation.events and is_plain(file, file.expectation.events[0])
]
REFUSED = [
    pytest.param(file, id=file.name) for file in CORPUS if file.expectation.mistakes and file.expectation.is_local
]
WARNED = [
    pytest.param(file, id=file.name) for file in CORPUS if file.expectation.warnings and file.expectation.is_local
]
SAMPLE = 8
"""Every how many files the command line is tested with one: starting it takes half a second."""


@pytest.mark.parametrize(("file", "event"), VALID[::SAMPLE])
def test_a_user_sees_the_jobs_on_the_command_line(file: CorpusFile, event: Event, tmp_path: Path) -> None:
    folder = folder_of(file, tmp_path)
    code, output = run_remuda("pipeline", "show", folder, "--output", "json", *options_of(event))
    assert code == 0, output
    check_pipeline(msgspec.json.decode(output, type=Pipeline), event)


@pytest.mark.parametrize("file", REFUSED[::SAMPLE])
def test_a_user_sees_the_mistakes_on_the_command_line(file: CorpusFile, tmp_path: Path) -> None:
    code, verdict = lint(file, tmp_path)
    assert (code, verdict["valid"]) == (2, False)
    assert describe_all(verdict["errors"], tmp_path) == file.expectation.mistakes


@pytest.mark.parametrize("file", WARNED[::SAMPLE])
def test_a_user_sees_the_warnings_on_the_command_line(file: CorpusFile, tmp_path: Path) -> None:
    code, verdict = lint(file, tmp_path)
    assert (code, verdict["valid"]) == (0, True)
    assert describe_all(verdict["warnings"], tmp_path) == file.expectation.warnings


def lint(file: CorpusFile, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run `remuda pipeline lint` on the file. Returns its exit code and its JSON document."""
    code, output = run_remuda("pipeline", "lint", folder_of(file, folder), "--output", "json")
    return code, json.loads(output)


def describe_all(mistakes: list[dict[str, Any]], folder: Path) -> list[str]:
    return [describe_mistake(msgspec.convert(each, Mistake), f"{folder}/") for each in mistakes]
