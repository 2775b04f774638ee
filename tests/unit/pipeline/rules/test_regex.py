import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError, compile_pattern, split_literal


def is_match(pattern: str, text: str, flags: str = "") -> bool:
    return Patterns().is_match(pattern, flags, text)


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
    assert is_match(pattern, text) is expected


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
    assert is_match(pattern, text, flags) is expected


@pytest.mark.parametrize(
    ("pattern", "message", "offset"),
    [
        ("(a", "a ( without its )", 0),
        ("a)", "a ) without its (", 1),
        ("[a", "a [ without its ]", 0),
        ("*a", "nothing to repeat", 0),
        ("a**", "nothing to repeat", 1),
        ("a{3,2}", "a repetition is written", 1),
        ("a{1001}", "a repetition is written", 1),
        ("a(?=b)", "groups that look ahead", 1),
        ("(?<!a)b", "groups that look ahead", 0),
        (r"(a)\1", r"\1 is not supported", 3),
        (r"\y", r"\y is not supported", 0),
        ("[z-a]", "z-a is not a range", 1),
        ("[[:nope:]]", "[:nope:] is not a range or class", 1),
        ("a\\", "it ends with a single \\", 2),
        (r"\xzz", r"\xzz is not supported", 0),
        ("((a{100}){100}){100}", "at most 1000 in all", 3),
        ("(((){1000}){1000}){1000}", "at most 1000 in all", 4),
        (r"\pN{1000}\pL{1000}", "too large", 0),
        (r"a\Z", r"\Z is not supported", 1),
        ("a" * 1001, "at most 1000 characters", 1000),
    ],
)
def test_invalid_patterns(pattern: str, message: str, offset: int) -> None:
    with pytest.raises(PatternError, match=re.escape(message)) as caught:
        compile_pattern(pattern)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_patterns_that_make_backtracking_engines_hang(pattern: str) -> None:
    began = time.process_time()
    assert not is_match(pattern, "a" * 2000 + "!")
    assert time.process_time() - began < 1


def test_too_costly_patterns_are_stopped() -> None:
    began = time.process_time()
    with pytest.raises(TooCostlyError):
        is_match("(a?){700}a{700}b", "a" * 10_000)
    assert time.process_time() - began < 3


def test_the_cost_limit_is_for_all_patterns_together() -> None:
    patterns = Patterns()
    subjects = ("a" * 100 + str(index) for index in range(100_000))
    with pytest.raises(TooCostlyError):
        any(patterns.is_match("a*b", "", subject) for subject in subjects)


def test_results_are_cached() -> None:
    patterns = Patterns()
    for _ in range(100_000):
        assert patterns.is_match("a*b", "", "a" * 100 + "b")


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
    assert is_match(pattern, text) is other


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=r"ab()[]{}|*+?^$.\-:=<!P,1dQEx", max_size=20), st.text(alphabet="ab1", max_size=5))
def test_any_text_is_compiled_or_refused(pattern: str, text: str) -> None:
    refused: PatternError | None = None
    try:
        compile_pattern(pattern).is_in(text, lambda _steps: None)
    except PatternError as error:
        refused = error
    assert refused is None or 0 <= refused.offset <= len(pattern)


def last_match(expression: str, text: str, flags: str = "") -> str | None:
    return compile_pattern(expression, flags).last_match(text, lambda steps: None)


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        (r"\d+%", "10% then 20%", "20%"),
        (r"\d+%", "nothing", None),
        (r"TOTAL.*? (100(?:\.0+)?\%|[1-9]?\d(?:\.\d+)?\%)$", "TOTAL   120   30   75%", "75%"),
        (r"Lines:\s+(\d+\.\d+)%\s+of\s+(\d+)", "Lines:   98.25% of 400", "400"),
        (r"(a)|(b)", "b a", "a"),
        (r"(?P<rate>\d+) of", "3 of 4 of", "4"),
        (r"a.*b", "a1b a2b", "a1b a2b"),
        (r"a.*?b", "a1b a2b", "a2b"),
        (r"(a+?)(a*)", "aaa", "aa"),
        (r"x*", "", ""),
        (r"^\d+", "12 34", "12"),
        (r"\b\d+\b", "a1 22 b3", "22"),
        (r"(a|ab)(c|bcd)", "abcd", "bcd"),
        (r"(\d)+", "123", "3"),
    ],
)
def test_last_match(expression: str, text: str, expected: str | None) -> None:
    assert last_match(expression, text) == expected


def test_flags_of_the_last_match() -> None:
    assert last_match("total (.)", "TOTAL 7", "i") == "7"
    assert last_match("a.*b", "a1b a2b", "U") == "a2b"
    assert last_match("a.*?b", "a1b a2b", "U") == "a1b a2b"


_PARTS = st.sampled_from(["a", "b", ".", "[ab]", "a*", "b+?", "(a|b)", "(ab)?", "(?:ba)+", "(a*)", "$", "^", r"\b"])


@given(st.lists(_PARTS, min_size=1, max_size=6).map("".join), st.text("ab ", max_size=12))
def test_the_same_as_a_backtracking_engine(expression: str, text: str) -> None:
    matches = list(re.finditer(expression, text))
    # Both engines count an empty match directly after another one; Python's starts where the other one ended.
    expected = None
    offset = 0
    while offset <= len(text) and (match := re.compile(expression).search(text, offset)):
        numbers = [number for number in range(match.re.groups, 0, -1) if match.start(number) >= 0]
        expected = match[numbers[0]] if numbers else match[0]
        offset = max(match.end(), match.start() + 1)
    assert last_match(expression, text) == expected
    assert (expected is None) is (not matches)


def test_the_cost_is_reported() -> None:
    spent = 0

    def spend(steps: int) -> None:
        nonlocal spent
        spent += steps

    text = "a" * 2000 + "b"
    assert compile_pattern("(a*)*(b)").last_match(text, spend) == "b"
    assert spent < 40 * len(text)
    assert compile_pattern("(a*)*never").last_match(text, spend) is None
