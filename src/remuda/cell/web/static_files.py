"""Serves the style sheet, scripts and images of the pages, from memory.

The address of a file contains a hash of all files, so that browsers may keep it for ever and scripts can import each
other with relative addresses. A file is served under the hash of this release only; other addresses answer 404."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from mimetypes import guess_type

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.errors import not_found

ROOT = "/-/static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_LEAST_COMPRESSED_BYTES = 1024


@cache
def _load() -> tuple[str, dict[str, tuple[bytes, bytes]]]:
    """Return the hash of all files, and each file by name: its content, and that compressed."""
    contents = {
        entry.name: entry.read_bytes()
        for entry in files("remuda.cell.web").joinpath("static").iterdir()
        if entry.is_file()
    }
    digest = hashlib.sha256(b"".join(name.encode() + content for name, content in sorted(contents.items())))
    compressed = {name: (content, gzip.compress(content, mtime=0)) for name, content in contents.items()}
    return digest.hexdigest()[:16], compressed


def static_address(name: str) -> str:
    """The address of a static file. Raises KeyError if there is none with this name."""
    digest, contents = _load()
    if name not in contents:
        raise KeyError(name)
    return f"{ROOT}/{digest}/{name}"


async def serve_static(request: Request) -> Response:
    digest, contents = _load()
    name = request.path_params["name"]
    if request.path_params["digest"] != digest or name not in contents:
        raise not_found("File")
    content, compressed = contents[name]
    suffix = name[name.rindex(".") :] if "." in name else ""
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
    }
    if len(content) >= _LEAST_COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = compressed, "gzip"
    return Response(content, headers=headers, media_type=_TYPES.get(suffix) or guess_type(name)[0])
