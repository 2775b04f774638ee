"""Creates presigned URLs (S3 signature version 4, unsigned body) for caches in an object storage. Pure code.

A URL is valid for one method, one object and a limited time. Machines that run jobs never get the credentials. Objects
are named as gitlab-runner names them, so that both kinds of runners can share a bucket."""

import hashlib
import hmac
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from remuda.manager.config.cache import CacheConfig, S3Config

DEFAULT_REGION = "us-east-1"
AMAZON = "s3.amazonaws.com"
LONGEST_SECONDS = 7 * 24 * 3600
"""Longest validity of a signature."""
_SERVICE = "s3"


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    """With the port, if there is one."""
    prefix: str
    """Prefix of all paths: `/BUCKET`, or empty if the host contains the bucket."""
    region: str
    access_key: str
    secret_key: str
    session_token: str = ""


def bucket_of(config: S3Config) -> Bucket:
    server, region = config.server_address or AMAZON, config.location or DEFAULT_REGION
    is_amazon = server == AMAZON or server.endswith(".amazonaws.com")
    in_path = not is_amazon or "." in config.bucket if config.path_style is None else config.path_style
    if server == AMAZON:
        dual_stack = ".dualstack" if config.dual_stack else ""
        is_fast = config.accelerate and not in_path
        # Accelerated addresses contain no region.
        server = f"s3-accelerate{dual_stack}.amazonaws.com" if is_fast else f"s3{dual_stack}.{region}.amazonaws.com"
    return Bucket(
        scheme="http" if config.insecure else "https",
        host=server if in_path else f"{config.bucket}.{server}",
        prefix=f"/{config.bucket}" if in_path else "",
        region=region,
        access_key=config.access_key,
        secret_key=config.secret_key,
        session_token=config.session_token,
    )


def object_name(config: CacheConfig, *, runner: str, project: str, key: str) -> str:
    """Return the name of a cache archive in its bucket. It contains the `runner` unless runners share their caches."""
    own = () if config.shared else ("runner", runner)
    return "/".join([*(part for part in config.path.split("/") if part), *own, "project", project, key])


def sign_url(bucket: Bucket, method: str, name: str, *, at: float, seconds: int) -> str:
    """Return a presigned URL of an object for one method, valid for `seconds` (at most LONGEST_SECONDS) from `at`."""
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
    request = f"{method}\n{path}\n{query}\nhost:{bucket.host}\n\nhost\nUNSIGNED-PAYLOAD"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{bucket.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{bucket.scheme}://{bucket.host}{path}?{query}&X-Amz-Signature={signature}"
