"""Parsing of plugin references, and which versions match a constraint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.references import Version, folder_name, parse_reference, parse_version, version_of_folder

DEFAULT = "registry.gitlab.com/gitlab-org/fleeting/plugins"
numbers = st.tuples(*[st.integers(0, 10**9 - 1)] * 3)
words = st.from_regex(r"[0-9A-Za-z-]{1,8}", fullmatch=True)
any_version = st.builds(Version, numbers=numbers, pre=st.lists(words, max_size=3).map(tuple))


@pytest.mark.parametrize(
    ("text", "place", "constraint"),
    [
        ("aws", f"{DEFAULT}/aws", "latest"),
        ("aws:latest", f"{DEFAULT}/aws", "latest"),
        ("aws:1", f"{DEFAULT}/aws", "1"),
        ("aws:1.2", f"{DEFAULT}/aws", "1.2"),
        ("aws:1.2.3-rc.1", f"{DEFAULT}/aws", "1.2.3-rc.1"),
        ("group/sub/mine:0", "registry.gitlab.com/group/sub/mine", "0"),
        ("example.com/mine", "example.com/mine", "latest"),
        ("127.0.0.1:5000/a/b_c:1.0", "127.0.0.1:5000/a/b_c", "1.0"),
        ("localhost:5000/mine", "localhost:5000/mine", "latest"),
    ],
)
def test_omitted_parts_have_defaults(text: str, place: str, constraint: str) -> None:
    reference = parse_reference(text)
    assert (reference.place, reference.constraint.text) == (place, constraint)
    assert parse_reference(reference.text) == reference
    assert parse_reference(f"{reference.short}:{constraint}") == reference


@pytest.mark.parametrize("text", ["AWS", "", "a//b", "../aws", "aws:", "aws:v1", "aws:1.2.3.4", "aws:01", "a b"])
def test_invalid_references_are_refused(text: str) -> None:
    with pytest.raises(PermanentError):
        parse_reference(text)


@pytest.mark.parametrize(
    ("constraint", "best"),
    [
        ("latest", "1.10.0"),
        ("1", "1.10.0"),
        ("1.2", "1.2.9"),
        ("1.2.3", "1.2.3"),
        ("2.0.0-rc.1", "2.0.0-rc.1"),
        ("2", None),
        ("2.0.0", None),
        ("1.3", None),
    ],
)
def test_the_highest_matching_version_is_chosen(constraint: str, best: str | None) -> None:
    parsed = [parse_version(text) for text in ("1.2.9", "1.10.0", "1.2.3", "0.9.0", "2.0.0-rc.2", "2.0.0-rc.1")]
    available = [version for version in parsed if version is not None]
    chosen = parse_reference(f"aws:{constraint}").constraint.best(available)
    assert (chosen and chosen.text) == best


def test_versions_have_the_order_of_semantic_versioning() -> None:
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"]
    versions = [version for version in map(parse_version, reversed(texts)) if version is not None]
    assert [version.text for version in sorted(versions, key=lambda version: version.order)] == texts


@given(any_version)
def test_a_version_is_its_text_and_its_folder(version: Version) -> None:
    assert parse_version(version.text) == version
    assert version_of_folder(folder_name(version)) == version
    assert folder_name(version) == folder_name(version).lower()
