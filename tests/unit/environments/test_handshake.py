"""The handshake line of an environment plugin, and the choice of the protocol version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.environments.errors import PluginError
from remuda.environments.handshake import Handshake, common_version, read_handshake

VERSIONS = st.lists(st.integers(min_value=0, max_value=999_999), min_size=1, max_size=5, unique=True)
PATHS = st.text(alphabet=st.characters(codec="ascii", exclude_characters="|\n\r"), max_size=50).map(
    lambda text: "/" + text.strip()
)


@given(versions=VERSIONS, path=PATHS)
def test_a_line_is_read_as_it_was_written(versions: list[int], path: str) -> None:
    written = Handshake(versions=tuple(sorted(versions)), path=path)
    assert read_handshake(f"{written.line}\n") == written


@given(text=st.text(max_size=60))
def test_any_other_line_is_refused(text: str) -> None:
    with pytest.raises(PluginError, match="handshake"):
        read_handshake(text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "this is no handshake"),
        ("hello", "nothing may be printed before"),
        ("1|0|unix|/x|grpc", "this is no handshake"),
        ("remuda-environment|one|unix|/x", "invalid versions"),
        ("remuda-environment|1|tcp|localhost:1", "only unix and an absolute path"),
        ("remuda-environment|1|unix|x", "only unix and an absolute path"),
    ],
)
def test_error_messages_for_invalid_lines(line: str, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        read_handshake(line)
    assert words in str(caught.value)


@given(plugin=VERSIONS, host=VERSIONS)
def test_the_highest_common_version_is_chosen(plugin: list[int], host: list[int]) -> None:
    if shared := set(plugin) & set(host):
        assert common_version(plugin, host) == max(shared)
        return
    with pytest.raises(PluginError) as caught:
        common_version(plugin, host)
    for version in (*plugin, *host):
        assert str(version) in str(caught.value)
    assert ("newer Remuda" in str(caught.value)) == (max(plugin) > max(host))
