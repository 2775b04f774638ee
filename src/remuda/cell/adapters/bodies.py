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


def decode(kind: type[T], body: bytes) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: T = decoder.decode(body)
    return value


@lru_cache(maxsize=_REMEMBERED_JOBS)
def decode_job(body: bytes) -> Job:
    """A job of a family."""
    return decode(Job, body)
