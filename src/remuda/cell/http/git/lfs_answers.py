"""JSON responses of Git LFS."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/vnd.git-lfs+json"


def answer_lfs(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response in JSON with the media type of Git LFS."""
    return Response(msgspec.json.encode(value), status, headers, MEDIA_TYPE)
