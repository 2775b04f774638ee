"""Facts about `[runners.cache]`. Pure."""

from dataclasses import replace
from typing import Any

from remuda.manager.config.keys.fact import Fact, Facts, differs, ignored, refused_if_set, works

_FOLDER = "caches are kept in `cache_dir` on the machine instead"
_NOT_THIS_KIND = f"this kind of storage is not supported; {_FOLDER}"
_NO_ROLES = "keys from a role are not supported"


def _type(value: Any) -> Fact | None:
    return None if str(value).lower() in ("", "s3") else ignored(f"{value} is not supported; {_FOLDER}")


def _authentication(value: Any) -> Fact | None:
    return None if value in ("", "access-key") else ignored(f"{_NO_ROLES}; {_FOLDER}")


CACHE: Facts = {
    "Type": replace(works("`s3`; with `gcs` and `azure` caches are kept in `cache_dir`", "none"), unless=_type),
    "Path": works("what the names of all objects begin with"),
    "Shared": works("whether runners share the caches of a project", "false"),
    "MaxUploadedArchiveSize": works("largest archive in bytes; 0 is no limit", "0"),
    "s3.ServerAddress": works("`HOST` or `HOST:PORT`", "`s3.amazonaws.com`"),
    "s3.AccessKey": works("needed: keys from the machine's role are not supported"),
    "s3.SecretKey": works("needed"),
    "s3.SessionToken": works("of keys that end by themselves"),
    "s3.BucketName": works("needed"),
    "s3.BucketLocation": works("the region", "`us-east-1`"),
    "s3.Insecure": works("HTTP instead of HTTPS", "false"),
    "s3.PathStyle": works("whether the bucket stands in the path or before the host's name", "by the server"),
    "s3.AuthenticationType": replace(differs("only `access-key`", "`access-key`"), unless=_authentication),
    "s3.ServerSideEncryption": refused_if_set(
        "archives would be stored without this encryption; set it as the bucket's own default and remove the key"
    ),
    "s3.ServerSideEncryptionKeyID": refused_if_set("goes with `ServerSideEncryption`"),
    "s3.DualStack": works("Amazon's addresses for IPv4 and IPv6", "true"),
    "s3.Accelerate": works("Amazon's addresses for buckets with transfer acceleration", "false"),
    "s3.RoleARN": ignored(f"{_NO_ROLES}; {_FOLDER}"),
    "s3.UploadRoleARN": ignored(f"{_NO_ROLES}; {_FOLDER}"),
    "s3.AssumeRoleMaxConcurrency": ignored(_NO_ROLES),
    "s3.DisableAssumeRoleCredentialsCaching": ignored(_NO_ROLES),
    **{
        f"gcs.{key}": ignored(_NOT_THIS_KIND)
        for key in ("AccessID", "PrivateKey", "CredentialsFile", "BucketName", "UniverseDomain")
    },
    **{
        f"azure.{key}": ignored(_NOT_THIS_KIND)
        for key in ("AccountName", "AccountKey", "ContainerName", "StorageDomain")
    },
}
