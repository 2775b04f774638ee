"""How a stored value becomes the body of its row, and a body the value again: JSON, the same in every database."""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from remuda.cell.values import Job

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}

_REMEMBERED_JOBS = 8192
"""A family is read whole for each change of one job: of a wide pipeline nearly all are as they were the last time."""

_REMEMBERED = 512


def decode(kind: type[T], body: bytes) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: T = decoder.decode(body)
    return value


def decode_again(kind: type[T], body: bytes) -> T:
    """Something that many jobs have in common, and that was most likely read before."""
    known: Any = kind
    value: T = _remembered(known, body)
    return value


@lru_cache(maxsize=_REMEMBERED)
def _remembered(kind: Any, body: bytes) -> Any:
    return decode(kind, body)


@lru_cache(maxsize=_REMEMBERED_JOBS)
def decode_job(body: bytes) -> Job:
    """A job of a family."""
    return decode(Job, body)
