"""Addresses of objects that carry their permission with them: signed for one method, one object and a time.

Pure. The way of S3 (signature version 4 in the query, the body not signed), which most object storages understand.
Whoever has such an address needs no credential, so the machines that jobs run on get only these.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

LONGEST_SECONDS = 7 * 24 * 3600
"""No signature is valid for longer."""
_SERVICE = "s3"


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, and the credentials that sign for it."""

    scheme: str
    host: str
    """With the port where it has one."""
    prefix: str
    """The beginning of all paths: `/BUCKET` or nothing where the host names it."""
    region: str
    access_key: str
    secret_key: str
    session_token: str = ""


def signed_url(bucket: Bucket, method: str, name: str, *, at: float, seconds: int) -> str:
    """The address of an object, good for a method from a moment on."""
    moment = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{bucket.region}/{_SERVICE}/aws4_request"
    path = quote(f"{bucket.prefix}/{name}", safe="/-_.~")
    fields = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{bucket.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(min(seconds, LONGEST_SECONDS)),
        "X-Amz-SignedHeaders": "host",
    }
    if bucket.session_token:
        fields["X-Amz-Security-Token"] = bucket.session_token
    query = "&".join(f"{key}={quote(fields[key], safe='-_.~')}" for key in sorted(fields))
    asked = f"{method}\n{path}\n{query}\nhost:{bucket.host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{bucket.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{bucket.scheme}://{bucket.host}{path}?{query}&X-Amz-Signature={signature}"
