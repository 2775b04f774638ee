"""Signed S3 URLs, compared with the example that AWS published and with another library."""

from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest
from obstore.store import S3Store

from remuda.manager.compile.object_urls import LONGEST_SECONDS, Bucket, bucket_of, object_name, sign_url
from remuda.manager.config.cache import CacheConfig, S3Config

EXAMPLE = Bucket(
    scheme="https",
    host="examplebucket.s3.amazonaws.com",
    prefix="",
    region="us-east-1",
    access_key="AKIAIOSFODNN7EXAMPLE",
    secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
MOMENT = datetime(2013, 5, 24, tzinfo=UTC).timestamp()


def test_the_published_example() -> None:
    url = sign_url(EXAMPLE, "GET", "test.txt", at=MOMENT, seconds=86400)
    query = parse_qs(urlsplit(url).query)
    assert query["X-Amz-Signature"] == ["aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"]
    assert query["X-Amz-Credential"] == ["AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"]


@pytest.mark.parametrize("name", ["a/b-c_d.e~f", "ci/project/7/a%2Fb", "with space/+=&", "ü"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("token", ["", "session/+token=="])
def test_another_library_signs_the_same(name: str, method: Literal["GET", "PUT"], token: str) -> None:
    session = {"aws_session_token": token} if token else {}
    store = S3Store(
        "caches",
        aws_endpoint="http://127.0.0.1:9",
        aws_region="eu-west-1",
        aws_access_key_id="AK",
        aws_secret_access_key="secret",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
        **session,  # type: ignore[arg-type]
    )
    expected = urlsplit(obstore.sign(store, method, name, timedelta(seconds=77)))
    fields = parse_qs(expected.query)
    signed_at = datetime.strptime(fields["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    config = S3Config(
        server_address="127.0.0.1:9",
        access_key="AK",
        secret_key="secret",
        session_token=token,
        bucket="caches",
        location="eu-west-1",
        insecure=True,
    )
    actual = urlsplit(sign_url(bucket_of(config), method, name, at=signed_at, seconds=77))
    assert (actual.netloc, parse_qs(actual.query)) == (expected.netloc, fields)


def test_the_validity_of_a_signature_has_a_maximum() -> None:
    assert f"X-Amz-Expires={LONGEST_SECONDS}&" in sign_url(EXAMPLE, "PUT", "x", at=MOMENT, seconds=10**9)


@pytest.mark.parametrize(
    ("config", "host", "prefix"),
    [
        (S3Config(bucket="b"), "b.s3.dualstack.us-east-1.amazonaws.com", ""),
        (S3Config(bucket="b", dual_stack=False), "b.s3.us-east-1.amazonaws.com", ""),
        (S3Config(bucket="b", location="eu-west-1"), "b.s3.dualstack.eu-west-1.amazonaws.com", ""),
        (S3Config(bucket="b", accelerate=True), "b.s3-accelerate.dualstack.amazonaws.com", ""),
        (S3Config(bucket="b", accelerate=True, dual_stack=False), "b.s3-accelerate.amazonaws.com", ""),
        (S3Config(bucket="b.c", accelerate=True), "s3.dualstack.us-east-1.amazonaws.com", "/b.c"),
        (S3Config(bucket="b", server_address="minio.test:9000"), "minio.test:9000", "/b"),
        (S3Config(bucket="b", server_address="minio.test", path_style=False), "b.minio.test", ""),
        (S3Config(bucket="b", path_style=True, dual_stack=False), "s3.us-east-1.amazonaws.com", "/b"),
    ],
)
def test_host_and_prefix_of_a_bucket(config: S3Config, host: str, prefix: str) -> None:
    bucket = bucket_of(config)
    assert (bucket.host, bucket.prefix) == (host, prefix)


def test_object_names() -> None:
    assert object_name(CacheConfig(path="/a/b/"), runner="r", project="7", key="k") == "a/b/runner/r/project/7/k"
    assert object_name(CacheConfig(shared=True), runner="r", project="7", key="k") == "project/7/k"
