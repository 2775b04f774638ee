"""Types for `[runners.cache]`: caches in an object storage. Only S3 is supported; other kinds cause a warning, and
caches stay in a folder on the machine."""

import msgspec


class S3Config(msgspec.Struct, frozen=True, kw_only=True):
    """The section `[runners.cache.s3]`, with gitlab-runner's keys."""

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
    """The section `[runners.cache]`, with gitlab-runner's keys."""

    type: str = msgspec.field(default="", name="Type")
    path: str = msgspec.field(default="", name="Path")
    """Prefix of all object names."""
    shared: bool = msgspec.field(default=False, name="Shared")
    """Whether runners share the caches of a project."""
    largest_bytes: int = msgspec.field(default=0, name="MaxUploadedArchiveSize")
    s3: S3Config = S3Config()

    @property
    def is_in_objects(self) -> bool:
        return bool(self.type) and not self.problem

    @property
    def problem(self) -> str:
        """Why the configured object storage cannot be used; empty if it can, or none is configured."""
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
