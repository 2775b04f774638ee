"""Encodes values as JSON for the `body` column of rows, and decodes them. The JSON is the same in every database."""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from remuda.cell.values import Job

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}

_CACHED_JOBS = 8192
"""A family is read for each change of one of its jobs; in a wide pipeline nearly all other jobs are unchanged."""

_CACHED_VALUES = 512


def decode(kind: type[T], body: bytes) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: T = decoder.decode(body)
    return value


def decode_cached(kind: type[T], body: bytes) -> T:
    """Decode the `body` of a row. Cached, for values that many jobs share, such as pipelines and projects."""
    any_kind: Any = kind
    value: T = _decode_cached(any_kind, body)
    return value


@lru_cache(maxsize=_CACHED_VALUES)
def _decode_cached(kind: Any, body: bytes) -> Any:
    return decode(kind, body)


@lru_cache(maxsize=_CACHED_JOBS)
def decode_job(body: bytes) -> Job:
    """Decode a job. Cached, because each change of a pipeline reads all its jobs again."""
    return decode(Job, body)
