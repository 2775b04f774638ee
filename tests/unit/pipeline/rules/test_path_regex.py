import pytest

from remuda.pipeline.rules.path_regex import PathRegex
from remuda.pipeline.rules.regex import PatternError, Patterns, TooCostlyError, UnsupportedError


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        (r"\.go$", "cmd/main.go", True),
        (r"\.go$", "main.go.txt", False),
        (r"\Asrc/.*\.rb\z", "src/a/b.rb", True),
        (r"\Asrc/.*\.rb\z", "lib/src/b.rb", False),
        (r"a|b", "xb", True),
        ("^b", "a\nb", True),
        (r"\A(?!docs/)", "docs/a.md", False),
        (r"\A(?!docs/)", "src/a.md", True),
        (r"^(?!docs/).*$", "src/docs/a.md", True),
        (r"^(?!.*\.md$)(?!docs/).*", "a.md", False),
        (r"^(?!.*\.md$)(?!docs/).*", "docs/a.txt", False),
        (r"^(?!.*\.md$)(?!docs/).*", "a.txt", True),
        (r"^(?!(docs|ci)/|README)", "ci/a", False),
        (r"^(?!(docs|ci)/|README)", "README.md", False),
        (r"^(?!(docs|ci)/|README)", "src/a", True),
        (r"^(?!a\))", "a)", False),
        ("^(?![])]a)", ")a", False),
        ("^(?![])]a)", ")b", True),
        (r"^(?=src/)(?!.*_test).*\.(c|h)$", "src/a.c", True),
        (r"^(?=src/)(?!.*_test).*\.(c|h)$", "src/a_test.c", False),
        (r"^(?=src/)(?!.*_test).*\.(c|h)$", "lib/a.c", False),
        ("", "a", True),
    ],
)
def test_expressions(text: str, path: str, expected: bool) -> None:
    assert PathRegex(text, Patterns()).fits_any([path]) is expected


def test_one_path_is_enough() -> None:
    outside = PathRegex(r"\A(?!docs/)", Patterns())
    assert outside.fits_any(["docs/a", "src/b"])
    assert not outside.fits_any(["docs/a", "docs/b"])
    assert not outside.fits_any([])


@pytest.mark.parametrize("text", [r"a(?<!b)", "(?!docs/)a", r"\Ax(?!y)", "^(?!a)b|c", "(?>a)b", r"(a)\1", r"\h", "a*+"])
def test_what_only_ruby_knows(text: str) -> None:
    with pytest.raises(UnsupportedError):
        PathRegex(text, Patterns())


@pytest.mark.parametrize("text", ["(", "a)", "[b", "^(?!a", "^(?!(a)", "^(?!a)(", "*a"])
def test_mistakes(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        PathRegex(text, Patterns())
    assert not isinstance(caught.value, UnsupportedError)


def test_a_costly_expression_ends_soon() -> None:
    costly = PathRegex("(?:[a-z]{1,20}/){3,30}q", Patterns())
    with pytest.raises(TooCostlyError):
        costly.fits_any("abcdefgh/" * 6 for _ in range(50_000))


def test_a_large_repository_is_not_costly() -> None:
    patterns = Patterns()
    for text in (r"\.go$", r"\A(?!folder/)"):
        assert not PathRegex(text, patterns).fits_any(f"folder/sub-folder/file-{n}.txt" for n in range(50_000))
