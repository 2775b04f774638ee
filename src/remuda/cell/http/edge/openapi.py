"""The OpenAPI 3.1 document of a cell, generated from the declared endpoints; `remuda cell openapi` prints it. Error
statuses are derived from who may call, and from whether there are path parameters, a query, a body or pages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypedDict, get_origin

import msgspec

from remuda import __version__
from remuda.cell.core.payload.step_policies import SCOPES
from remuda.cell.http.edge.access import Access, Kind
from remuda.cell.http.edge.endpoints import Endpoint, Shape
from remuda.cell.http.edge.paging import MAX_SIZE

JSON, FORM, MULTIPART, ANY = "application/json", "application/x-www-form-urlencoded", "multipart/form-data", "*/*"
LFS = "application/vnd.git-lfs+json"
_REFS = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"\{(\w+)(?::path)?\}")
_BY_PATH = re.compile(r"/(?:projects|groups|namespaces)/\{id\}")
"""Paths where `{id}` may also be a full path with its slashes encoded."""
_NUMBER = re.compile(r"id|iid|\w+_id")
_MAX_NUMBER = 10**18 - 1
_WHOLE_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": _MAX_NUMBER}
_PLAIN_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_NO_KEYSET_PAGINATION = 405
_PAGE_HEADERS = ("X-Total", "X-Total-Pages", "X-Page", "X-Per-Page", "X-Next-Page", "X-Prev-Page", "Link")
_PAGE = {
    "page": {"type": "integer", "minimum": 1},
    "per_page": {"type": "integer", "minimum": 1, "maximum": MAX_SIZE},
}
_SCHEMES = {
    "personal": {"type": "apiKey", "in": "header", "name": "PRIVATE-TOKEN"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "job": {"type": "apiKey", "in": "header", "name": "JOB-TOKEN"},
    "runner": {"type": "apiKey", "in": "header", "name": "RUNNER-TOKEN"},
    "git": {"type": "http", "scheme": "basic"},
}
_PERSON: list[dict[str, list[str]]] = [{"personal": []}, {"bearer": []}]

_REFUSED = "The call was refused or cannot be answered now; the body says why."


class Refusal(TypedDict, total=False):
    """Body of an error response: why the call failed, in `error` (parameters, paths, token scopes) or `message`."""

    message: str | dict[str, Any]
    error: str
    error_description: str
    scope: str
    mistakes: list[dict[str, Any]]


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = [kind for endpoint in endpoints for kind in _types(endpoint)]
    of_types, components = msgspec.json.schema_components([Refusal, *types], schema_hook=_any, ref_template=_REFS)
    for shape in _all_shapes(Shape):
        _require_fields(shape, components.get(shape.__name__, {}))
    schemas = _Schemas(dict(zip(map(_key, [Refusal, *types]), of_types, strict=True)), components)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _IN_PATH.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, path, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Remuda cell",
            "version": __version__,
            "description": "GitLab's API is under /api/v4, Remuda's own under /api/remuda/v1.",
        },
        "servers": [{"url": "/"}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {
                "Refusal": {"description": _REFUSED, "content": {JSON: {"schema": schemas.of(Refusal)}}},
                "LfsRefusal": {
                    "description": _REFUSED,
                    "content": {LFS: {"schema": schemas.of(Refusal)}, JSON: {"schema": schemas.of(Refusal)}},
                },
                "PlainRefusal": {"description": _REFUSED, "content": {"text/plain": {}, JSON: {}}},
            },
            "securitySchemes": _SCHEMES,
        },
    }


def _all_shapes(shape: type[Shape]) -> Iterable[type[Shape]]:
    for inner in shape.__subclasses__():
        yield inner
        yield from _all_shapes(inner)


def _require_fields(shape: type[Shape], schema: dict[str, Any]) -> None:
    """Correct the JSON schema of a response type: every field is required, except those with the default UNSET. Only
    these can be missing in a response, but msgspec marks every field with a default as optional."""
    fields = [field for field in msgspec.structs.fields(shape) if field.encode_name in schema.get("properties", {})]
    for field in fields:
        schema["properties"][field.encode_name].pop("default", None)
    if fields:
        schema["required"] = [field.encode_name for field in fields if field.default is not msgspec.UNSET]


class _Schemas:
    def __init__(self, schemas: Mapping[str, dict[str, Any]], components: Mapping[str, dict[str, Any]]) -> None:
        self._schemas = schemas
        self._components = components

    def of(self, kind: Any) -> dict[str, Any]:
        return self._schemas[_key(kind)]

    def fields(self, kind: Any) -> tuple[Mapping[str, dict[str, Any]], Sequence[str]]:
        """The JSON schemas of a struct's fields, by name, and the names of the required fields."""
        schema = self.of(kind)
        whole = self._components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        return whole.get("properties", {}), whole.get("required", ())


def _key(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) and not get_origin(kind) else repr(kind)


def _any(kind: type) -> dict[str, Any]:
    """msgspec's hook for types without a schema: `object` allows any JSON; others raise NotImplementedError."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "Any JSON value."}


def _types(endpoint: Endpoint) -> Iterable[Any]:
    declared = (endpoint.takes, endpoint.gives, *endpoint.query.values())
    return (kind for kind in declared if kind is not None and kind is not bytes)


def _operation(endpoint: Endpoint, path: str, schemas: _Schemas) -> dict[str, Any]:
    module = endpoint.handler.__module__.rpartition(".")[2]
    summary = endpoint.summary or f"{module}: {endpoint.handler.__name__}".replace("_", " ")
    operation: dict[str, Any] = {
        "operationId": "_".join([endpoint.method.lower(), *re.findall(r"\w+", path.removeprefix("/api/"))]),
        "summary": summary[0].upper() + summary[1:],
        "description": f"Who may call it: {endpoint.access}.",
        "tags": [module],
        "parameters": _parameters(endpoint, path, schemas),
        "security": _security(endpoint.access),
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.takes is not None and endpoint.method != "GET":
        operation["requestBody"] = _body(endpoint, schemas)
    return operation


def _parameters(endpoint: Endpoint, path: str, schemas: _Schemas) -> list[dict[str, Any]]:
    query = {name: schemas.of(kind) for name, kind in endpoint.query.items()}
    required: Sequence[str] = ()
    if endpoint.takes is not None and endpoint.method == "GET":
        fields, required = schemas.fields(endpoint.takes)
        query |= fields
    if get_origin(endpoint.gives) is list:
        query |= _PAGE
    return [
        *(
            {"name": name, "in": "path", "required": True, "schema": _path_parameter(name, path)}
            for name in _IN_PATH.findall(path)
        ),
        *({"name": name, "in": "query", "required": name in required, "schema": query[name]} for name in query),
        *({"name": name, "in": "header", "schema": {"type": "string"}} for name in endpoint.headers),
    ]


def _path_parameter(name: str, path: str) -> dict[str, Any]:
    if name == "scope":
        return {"type": "string", "enum": list(SCOPES)}
    if name == "token_id":
        return {"anyOf": [_WHOLE_NUMBER, {"const": "self"}]}
    if not _NUMBER.fullmatch(name):
        return _PLAIN_NAME
    return {"anyOf": [_WHOLE_NUMBER, _PLAIN_NAME]} if name == "id" and _BY_PATH.search(path) else _WHOLE_NUMBER


def _body(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    if endpoint.takes is bytes:
        file = {"type": "object", "properties": {"file": {"contentMediaType": "application/octet-stream"}}}
        is_form = endpoint.method == "POST"
        return {"required": True, "content": {MULTIPART: {"schema": file}} if is_form else {ANY: {}}}
    schema = {"schema": schemas.of(endpoint.takes)}
    content = dict.fromkeys((endpoint.media_type, JSON, FORM), schema)
    return {"required": bool(schemas.fields(endpoint.takes)[1]), "content": content}


def _security(access: Access) -> list[dict[str, list[str]]]:
    match access.kind:
        case Kind.OPEN | Kind.TRIGGER:
            return []
        case Kind.RUNNER:
            return [{"runner": []}, {}]
        case Kind.JOB:
            # The token may also be a parameter.
            return [{"job": []}, {}]
        case Kind.GIT:
            return [{"git": []}]
        case _:
            return [*_PERSON, {"job": []}] if access.or_job else _PERSON


def _responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    # git and docker print the body of an error to their users, each in its own form.
    refusal = "PlainRefusal" if endpoint.access.kind is Kind.GIT else "Refusal"
    if endpoint.media_type == LFS:
        refusal = "LfsRefusal"
    answers: dict[int, Any] = {code: {"$ref": f"#/components/responses/{refusal}"} for code in _refusals(endpoint)}
    for code in (endpoint.good_status, *(code for code in endpoint.also if code < HTTPStatus.BAD_REQUEST)):
        is_empty = code in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        answers[code] = {"description": HTTPStatus(code).phrase, **({} if is_empty else _answer(endpoint, schemas))}
    return {str(code): answers[code] for code in sorted(answers)}


def _answer(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    if endpoint.gives is None:
        return {}
    if endpoint.gives is bytes:
        return {"content": {ANY: {}}}
    answer: dict[str, Any] = {"content": {endpoint.media_type: {"schema": schemas.of(endpoint.gives)}}}
    if get_origin(endpoint.gives) is list:
        answer["headers"] = {name: {"schema": {"type": "string"}} for name in _PAGE_HEADERS}
    return answer


def _refusals(endpoint: Endpoint) -> set[int]:
    """The error statuses with which an endpoint can answer, derived from its declaration."""
    codes = {code for code in endpoint.also if code >= HTTPStatus.BAD_REQUEST}
    needs_token = endpoint.access.kind is not Kind.OPEN
    has_input = "{" in endpoint.path or endpoint.takes is not None
    if has_input or endpoint.query:
        codes |= {400}
    if needs_token:
        codes |= {400, 401, 403, 404, 429}
    if has_input:
        codes |= {404}
    if endpoint.takes is not None:
        codes |= {408, 413}
    if get_origin(endpoint.gives) is list:
        codes |= {400, _NO_KEYSET_PAGINATION}
    return codes | {503} if endpoint.path.startswith("/api/") else codes
