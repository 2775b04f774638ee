"""Says how Remuda treats each key of `[runners.cache]`: works, differs, ignored or refused (see `fact.py`)."""

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
    "Path": works("prefix of the names of all objects"),
    "Shared": works("whether runners share the caches of a project", "false"),
    "MaxUploadedArchiveSize": works("size limit for an archive in bytes; 0 means no limit", "0"),
    "s3.ServerAddress": works("`HOST` or `HOST:PORT`", "`s3.amazonaws.com`"),
    "s3.AccessKey": works("access key; required: keys from the role of the machine are not supported"),
    "s3.SecretKey": works("secret key; required"),
    "s3.SessionToken": works("token of temporary keys"),
    "s3.BucketName": works("name of the bucket; required"),
    "s3.BucketLocation": works("the region", "`us-east-1`"),
    "s3.Insecure": works("use HTTP instead of HTTPS", "false"),
    "s3.PathStyle": works("whether the name of the bucket is in the path or in the host name", "depends on the server"),
    "s3.AuthenticationType": replace(
        differs("only `access-key`", "`access-key`", there="also `iam`"), unless=_authentication
    ),
    "s3.ServerSideEncryption": refused_if_set(
        "archives would be stored without this encryption; set it as the bucket's own default and remove the key"
    ),
    "s3.ServerSideEncryptionKeyID": refused_if_set("it belongs to `ServerSideEncryption`"),
    "s3.DualStack": works("use Amazon's addresses for IPv4 and IPv6", "true"),
    "s3.Accelerate": works("use Amazon's addresses for transfer acceleration", "false"),
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
