from remuda.pipeline.include.allowed_addresses import Prefix, read_prefix


def test_read_prefix() -> None:
    assert read_prefix("https://Example.org/a//b") == Prefix(
        scheme="https", host="example.org", port=443, folders=("a", "b")
    )
