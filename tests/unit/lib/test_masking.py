import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.masking import MASK, Masker, Secrets

# Few letters, so that secrets, prefixes and text overlap in every way; ":" is outside the token alphabet.
letters = st.text(alphabet="ab:-", min_size=1, max_size=6)
secrets = st.builds(Secrets, st.lists(letters, max_size=4), st.lists(letters, max_size=3))
texts = st.text(alphabet="ab:-\n", max_size=40).map(str.encode)


def mask_by_definition(secrets: Secrets, text: bytes) -> bytes:
    """A slow reference implementation: find every occurrence, then mask each group of overlapping ones."""
    spans = []
    for secret in secrets.texts:
        spans += [(offset, offset + len(secret)) for offset in range(len(text)) if text.startswith(secret, offset)]
    for prefix in secrets.prefixes:
        for offset in range(len(text)):
            if text.startswith(prefix, offset):
                token = re.match(rb"[0-9A-Za-z._=-]*", text[offset + len(prefix) :])
                assert token is not None
                if token.end():
                    spans.append((offset + len(prefix), offset + len(prefix) + token.end()))
    output, end = b"", 0
    for start, stop in sorted(spans):
        if start >= end:
            output += text[end:start] + MASK
        end = max(end, stop)
    return output + text[end:]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


@given(secrets, texts)
def test_masking_of_a_whole_text_equals_the_definition(secrets: Secrets, text: bytes) -> None:
    assert secrets.mask_bytes(text) == mask_by_definition(secrets, text)


def test_a_prefix_that_overlaps_itself_is_found_at_every_position() -> None:
    assert Secrets(prefixes=["::"]).mask_bytes(b":::a ::::b") == b":::[MASKED] ::::[MASKED]"


@given(secrets, texts, st.lists(st.integers(0, 100), max_size=8))
def test_any_chunking_gives_the_same_output(secrets: Secrets, text: bytes, cuts: list[int]) -> None:
    masker = Masker(secrets)
    output = b"".join(masker.feed(piece) for piece in split(text, cuts)) + masker.finish()
    assert output == secrets.mask_bytes(text)


@given(secrets, texts, st.lists(st.integers(0, 100), max_size=8))
def test_a_new_masker_continues_from_the_state_of_another(secrets: Secrets, text: bytes, cuts: list[int]) -> None:
    output, fed, masker = b"", 0, Masker(secrets)
    for piece in split(text, cuts):
        output += masker.feed(text[fed : fed + len(piece)])
        fed += len(piece) - masker.pending
        pending = masker.pending
        masker = Masker(secrets, covered=masker.covered, in_token=masker.in_token)
        output += masker.feed(text[fed : fed + pending])
        fed += pending
    assert output + masker.feed(text[fed:]) + masker.finish() == secrets.mask_bytes(text)


@given(secrets, texts)
def test_nothing_is_pending_after_a_line_feed(secrets: Secrets, text: bytes) -> None:
    masker = Masker(secrets)
    output = masker.feed(text + b"\n")
    assert (masker.pending, masker.covered, masker.in_token) == (0, 0, False)
    assert output.endswith(b"\n")


@given(secrets, texts)
def test_pending_bytes_are_limited_by_the_length_of_secrets_and_prefixes(secrets: Secrets, text: bytes) -> None:
    masker = Masker(secrets)
    masker.feed(text)
    longest = max((len(text) for text in secrets.texts), default=1) - 1
    prefixes = sum(len(prefix) for prefix in secrets.prefixes)
    assert masker.pending <= longest + prefixes * 2


def test_overlapping_secrets_are_masked_as_a_whole() -> None:
    assert Secrets(["abcd", "cdef"]).mask("x abcdef y") == "x [MASKED] y"


def test_a_token_is_masked_behind_its_prefix() -> None:
    assert Secrets(prefixes=["glpat-"]).mask("use glpat-a.b_c=9-Z, not glpat- ") == "use glpat-[MASKED], not glpat- "


def test_a_token_split_over_idle_flushes_shows_nothing() -> None:
    masker = Masker(Secrets(prefixes=["glpat-"]))
    assert [masker.feed(part) for part in (b"x glp", b"at-", b"ab", b"cd", b" y")] == [
        b"x ",
        b"",
        b"glpat-[MASKED]",
        b"",
        b" y",
    ]


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    secrets = Secrets(["-----BEGIN-----\r\nMIIabcd\r\n}\r\n"])
    assert secrets.mask("-----BEGIN-----\nMIIabcd\n}\n") == "[MASKED]\n[MASKED]\n}\n"


def test_blank_values_are_ignored_and_short_ones_are_masked() -> None:
    assert Secrets(["", " \n", "x"]).mask("a x b") == "a [MASKED] b"


def test_bytes_that_are_not_text_are_unchanged() -> None:
    data = bytes(range(256)) * 3
    assert Secrets(["secret"], ["glpat-"]).mask_bytes(data) == data
