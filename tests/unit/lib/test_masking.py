import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from remuda.lib.masking import MASK, Masker, Secrets

# Few letters, so that secrets, prefixes and text overlap in every way; ":" is outside the token alphabet.
letters = st.text(alphabet="ab:-", min_size=1, max_size=6)
secrets = st.builds(Secrets, st.lists(letters, max_size=4), st.lists(letters, max_size=3))
texts = st.text(alphabet="ab:-\n", max_size=40).map(str.encode)


def masked_by_definition(secrets: Secrets, text: bytes) -> bytes:
    """The plain meaning: mark every byte of every occurrence, then join what overlaps."""
    spans = []
    for secret in secrets.texts:
        spans += [(at, at + len(secret)) for at in range(len(text)) if text.startswith(secret, at)]
    for prefix in secrets.prefixes:
        for at in range(len(text)):
            if text.startswith(prefix, at):
                run = re.match(rb"[0-9A-Za-z._=-]*", text[at + len(prefix) :])
                assert run is not None
                if run.end():
                    spans.append((at + len(prefix), at + len(prefix) + run.end()))
    out, end = b"", 0
    for start, stop in sorted(spans):
        if start >= end:
            out += text[end:start] + MASK
        end = max(end, stop)
    return out + text[end:]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(secrets, texts)
def test_whole_text_is_masked_by_the_definition(secrets: Secrets, text: bytes) -> None:
    assert secrets.mask_bytes(text) == masked_by_definition(secrets, text)


def test_a_prefix_that_overlaps_itself_is_found_wherever_it_stands() -> None:
    assert Secrets(prefixes=["::"]).mask_bytes(b":::a ::::b") == b":::[MASKED] ::::[MASKED]"


@given(secrets, texts, st.lists(st.integers(0, 100), max_size=8))
def test_any_chunking_gives_the_same_output(secrets: Secrets, text: bytes, cuts: list[int]) -> None:
    masker = Masker(secrets)
    out = b"".join(masker.feed(piece) for piece in pieces(text, cuts)) + masker.finish()
    assert out == secrets.mask_bytes(text)


@given(secrets, texts, st.lists(st.integers(0, 100), max_size=8))
def test_a_new_masker_goes_on_from_three_numbers(secrets: Secrets, text: bytes, cuts: list[int]) -> None:
    out, fed, masker = b"", 0, Masker(secrets)
    for piece in pieces(text, cuts):
        out += masker.feed(text[fed : fed + len(piece)])
        fed += len(piece) - masker.pending
        pending = masker.pending
        masker = Masker(secrets, covered=masker.covered, in_token=masker.in_token)
        out += masker.feed(text[fed : fed + pending])
        fed += pending
    assert out + masker.feed(text[fed:]) + masker.finish() == secrets.mask_bytes(text)


@given(secrets, texts)
def test_nothing_is_held_behind_a_line_feed(secrets: Secrets, text: bytes) -> None:
    masker = Masker(secrets)
    out = masker.feed(text + b"\n")
    assert (masker.pending, masker.covered, masker.in_token) == (0, 0, False)
    assert out.endswith(b"\n")


@given(secrets, texts)
def test_no_more_is_held_than_a_secret_or_a_prefix_with_one_has_bytes(secrets: Secrets, text: bytes) -> None:
    masker = Masker(secrets)
    masker.feed(text)
    longest = max((len(text) for text in secrets.texts), default=1) - 1
    prefixes = sum(len(prefix) for prefix in secrets.prefixes)
    assert masker.pending <= longest + prefixes * 2


def test_overlapping_secrets_show_nothing_of_the_second() -> None:
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


def test_blank_values_mask_nothing_and_short_ones_do() -> None:
    assert Secrets(["", " \n", "x"]).mask("a x b") == "a [MASKED] b"


def test_bytes_that_are_no_text_pass_unchanged() -> None:
    data = bytes(range(256)) * 3
    assert Secrets(["secret"], ["glpat-"]).mask_bytes(data) == data
