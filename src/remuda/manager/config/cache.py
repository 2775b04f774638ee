"""`[runners.cache]` of gitlab-runner's configuration: where caches are kept, other than in a folder. Pure.

Decides which storages can be used, and what the objects of a project are called in it: as gitlab-runner calls them, so
that runners of both kinds can share a bucket. Other kinds of storage leave the caches in the folder, with a warning.
"""

import msgspec

from remuda.manager.compile.object_urls import Bucket

DEFAULT_REGION = "us-east-1"
AMAZON = "s3.amazonaws.com"


class S3Config(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.cache.s3]`."""

    server_address: str = msgspec.field(default="", name="ServerAddress")
    access_key: str = msgspec.field(default="", name="AccessKey")
    secret_key: str = msgspec.field(default="", name="SecretKey")
    session_token: str = msgspec.field(default="", name="SessionToken")
    bucket: str = msgspec.field(default="", name="BucketName")
    location: str = msgspec.field(default="", name="BucketLocation")
    insecure: bool = msgspec.field(default=False, name="Insecure")
    path_style: bool | None = msgspec.field(default=None, name="PathStyle")
    dual_stack: bool = msgspec.field(default=True, name="DualStack")
    accelerate: bool = msgspec.field(default=False, name="Accelerate")
    authentication: str = msgspec.field(default="", name="AuthenticationType")
    role: str = msgspec.field(default="", name="RoleARN")
    upload_role: str = msgspec.field(default="", name="UploadRoleARN")


class CacheConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[runners.cache]`."""

    type: str = msgspec.field(default="", name="Type")
    path: str = msgspec.field(default="", name="Path")
    """What the names of all objects begin with."""
    shared: bool = msgspec.field(default=False, name="Shared")
    """Whether runners share the caches of a project."""
    largest_bytes: int = msgspec.field(default=0, name="MaxUploadedArchiveSize")
    s3: S3Config = S3Config()

    @property
    def is_in_objects(self) -> bool:
        return bool(self.type) and not self.problem

    @property
    def problem(self) -> str:
        """Why the folder is used although something else is configured; empty where nothing is wrong."""
        if not self.type:
            return ""
        if self.type.lower() != "s3":
            return f"{self.type} is not supported"
        if self.s3.role or self.s3.upload_role or self.s3.authentication not in ("", "access-key"):
            return "keys from a role are not supported"
        missing = [
            name
            for name, value in (
                ("BucketName", self.s3.bucket),
                ("AccessKey", self.s3.access_key),
                ("SecretKey", self.s3.secret_key),
            )
            if not value
        ]
        return f"cache.s3 has no {', '.join(missing)}" if missing else ""


def bucket_of(config: S3Config) -> Bucket:
    """Where the objects are, and who signs."""
    server, region = config.server_address or AMAZON, config.location or DEFAULT_REGION
    is_amazon = server == AMAZON or server.endswith(".amazonaws.com")
    in_path = not is_amazon or "." in config.bucket if config.path_style is None else config.path_style
    if server == AMAZON:
        both = ".dualstack" if config.dual_stack else ""
        is_fast = config.accelerate and not in_path
        # The fast way has no regions; by the bucket's name alone Amazon finds it.
        server = f"s3-accelerate{both}.amazonaws.com" if is_fast else f"s3{both}.{region}.amazonaws.com"
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
    """What the archive of a key is called in its bucket; `key` is one part of a path."""
    own = () if config.shared else ("runner", runner)
    return "/".join([*(part for part in config.path.split("/") if part), *own, "project", project, key])
