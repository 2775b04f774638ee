"""The setting `ci_config_path` of a project: where its pipeline file is. A path in the repository, a file of another
project (`path@group/project` or `path@group/project:ref`), or an address (https://...)."""

import json
import re
from typing import Any

from msgspec.structs import replace

from remuda.cell.core.pipelines.creation import PARENT
from remuda.cell.errors import InvalidError
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.pipeline.rules.globs import normal_path

DEFAULT = ".gitlab-ci.yml"
MAX_LENGTH = 255
_ADDRESS = re.compile(r"https?://[^\s@]+", re.ASCII)
_OF_PROJECT = re.compile(r"(?P<file>[^@]+)@(?P<project>[A-Za-z0-9_./-]+)(?::(?P<ref>[^\s:]+))?", re.ASCII)


def check_config_path(text: str) -> None:
    """Raise InvalidError if `text` has none of the forms of the setting."""
    if len(text) > MAX_LENGTH or not text.isprintable():
        raise InvalidError(f"must have at most {MAX_LENGTH} characters, and no control characters")
    if _find_include(text) is None and ("@" in text or not normal_path(text)):
        raise InvalidError(
            "must be a path in the repository, path@group/project, path@group/project:ref, or an address (https://...)"
        )


def _find_include(text: str) -> dict[str, Any] | None:
    """Return the `include` entry of a file that is not in the repository; None for a path in the repository."""
    if text.startswith(("http://", "https://")):
        return {"remote": text} if _ADDRESS.fullmatch(text) else None
    match = _OF_PROJECT.fullmatch(text)
    if match is None or not normal_path(match["file"]):
        return None
    return {
        "project": match["project"],
        "file": "/" + match["file"].lstrip("/"),
        **({"ref": match["ref"]} if match["ref"] else {}),
    }


def with_config_path(request: PipelineRequest) -> PipelineRequest:
    """Return the request with the pipeline file that the project's setting names. A request that brings or names
    another file, and a child pipeline, stay unchanged. A file from elsewhere is included by a text of one entry, as in
    GitLab, so it gets the rules, limits and errors of `include`."""
    path = request.project.ci_config_path
    if not path or request.text is not None or request.file != DEFAULT or request.source == PARENT:
        return request
    include = _find_include(path)
    if include is None:
        return replace(request, file=path)
    if request.inputs:
        include = {**include, "inputs": dict(request.inputs)}
    return replace(request, text=json.dumps({"include": [include]}), file=path, inputs={})
