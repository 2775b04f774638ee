import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline.rules.regex_match import PatternError, Patterns, TooCostlyError, compile_pattern, split_literal


def found(pattern: str, text: str, flags: str = "") -> bool:
    return Patterns().found(pattern, flags, text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "anything", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^abc$", "abc", True),
        ("^abc$", "abc\n", False),
        ("a.c", "a\nc", False),
        ("a|bc|", "x", True),
        ("^(a|bc)+$", "abcbca", True),
        ("^a{2,3}$", "aaaa", False),
        ("^a{2,}$", "aaaa", True),
        ("^a{2}$", "aa", True),
        ("a{,2}", "a{,2}", True),
        ("^[a-c_.-]+$", "a_c.-b", True),
        ("^[^a-c]+$", "xyz", True),
        ("^[]a]+$", "]a", True),
        ("^[[:alpha:][:digit:]]+$", "a1", True),
        (r"^[\d\-]+$", "1-2", True),
        (r"^\d+\.\d+$", "1.25", True),
        (r"^\w+\s\W$", "word !", True),
        (r"\bfoo\b", "a foo b", True),
        (r"\bfoo\b", "afoob", False),
        (r"foo\B", "foob", True),
        (r"\Aa\z", "a", True),
        (r"^\x41\x{42}$", "AB", True),
        (r"^\p{Lu}\pL$", "Äé", True),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        ("(?i)ABC", "xabcx", True),
        ("(?i:A)b", "ab", True),
        ("(?i:A)b", "aB", False),
        ("(?P<name>a)(?<other>b)(?:c)", "abc", True),
        ("a+?b*?c??", "a", True),
        ("^(a?){3}a{3}$", "aaa", True),
    ],
)
def test_matches(pattern: str, text: str, expected: bool) -> None:
    assert found(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "flags", "text", "expected"),
    [
        ("abc", "i", "ABC", True),
        ("[a-c]", "i", "B", True),
        ("^b$", "m", "a\nb\nc", True),
        ("^b$", "", "a\nb\nc", False),
        ("a.b", "s", "a\nb", True),
        ("a+", "U", "a", True),
    ],
)
def test_flags(pattern: str, flags: str, text: str, expected: bool) -> None:
    assert found(pattern, text, flags) is expected


@pytest.mark.parametrize(
    ("pattern", "message", "offset"),
    [
        ("(a", "a ( without its )", 0),
        ("a)", "a ) without its (", 1),
        ("[a", "a [ without its ]", 0),
        ("*a", "nothing to repeat", 0),
        ("a**", "nothing to repeat", 2),
        ("a{3,2}", "a repetition is written", 1),
        ("a{1001}", "a repetition is written", 1),
        ("a(?=b)", "groups that look ahead", 1),
        ("(?<!a)b", "groups that look ahead", 0),
        (r"(a)\1", "a back reference does not work here", 3),
        (r"\y", r"\y does not work here", 0),
        ("[z-a]", "the range z-a is the wrong way round", 1),
        ("[[:nope:]]", "there is no such class", 1),
        ("a\\", "it ends too early", 2),
        (r"\xzz", "hexadecimal", 0),
        ("((a{100}){100}){100}", "too large", 0),
        ("(((){1000}){1000}){1000}", "too large", 0),
        ("(" * 60 + ")" * 60, "nested deeper than 50 levels", 50),
        ("a" * 1001, "at most 1000 characters", 1000),
    ],
)
def test_patterns_that_do_not_work(pattern: str, message: str, offset: int) -> None:
    with pytest.raises(PatternError, match=re.escape(message)) as caught:
        compile_pattern(pattern)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_patterns_that_make_others_hang(pattern: str) -> None:
    began = time.process_time()
    assert not found(pattern, "a" * 2000 + "!")
    assert time.process_time() - began < 1


def test_what_takes_too_long_is_given_up_on() -> None:
    began = time.process_time()
    with pytest.raises(TooCostlyError):
        found("(a?){700}a{700}b", "a" * 10_000)
    assert time.process_time() - began < 3


def test_the_allowance_is_for_all_patterns_together() -> None:
    patterns = Patterns()
    subjects = ("a" * 100 + str(index) for index in range(100_000))
    with pytest.raises(TooCostlyError):
        any(patterns.found("a*b", "", subject) for subject in subjects)


def test_an_answer_is_remembered() -> None:
    patterns = Patterns()
    for _ in range(100_000):
        assert patterns.found("a*b", "", "a" * 100 + "b")


@pytest.mark.parametrize(
    ("text", "parts"),
    [("/a/", ("a", "")), ("/a/im", ("a", "im")), (r"/a\/b/", ("a/b", "")), ("a", None), ("/a", None), ("/a/x", None)],
)
def test_literals(text: str, parts: tuple[str, str] | None) -> None:
    assert split_literal(text) == parts


PIECES = st.recursive(
    st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", r"\b"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?", "{0,1}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(PIECES, st.text(alphabet="abc1 \n", max_size=8))
def test_agrees_with_another_engine(pattern: str, text: str) -> None:
    other = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert found(pattern, text) is other


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=r"ab()[]{}|*+?^$.\-:=<!P,1dQEx", max_size=20), st.text(alphabet="ab1", max_size=5))
def test_any_text_is_a_pattern_or_none(pattern: str, text: str) -> None:
    refused: PatternError | None = None
    try:
        compile_pattern(pattern).found_in(text, lambda _steps: None)
    except PatternError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(pattern)
