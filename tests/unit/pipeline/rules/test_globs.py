import time

import pytest

from remuda.pipeline.rules.globs import Glob, is_include_glob, match_paths, normal_path


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.txt", "a.txt", True),
        ("/a.txt", "a.txt", False),
        ("./a.txt", "a.txt", False),
        ("a.txt", "b/a.txt", False),
        ("*.md", "a.md", True),
        ("*.md", "d/a.md", False),
        ("*", ".hidden", True),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("docs/**/*", "docs/a", True),
        ("docs/**/*", "docs/a/b/c", True),
        ("docs/**", "docs", False),
        ("docs/**", "docs/a", True),
        ("docs/**", "docs/a/b", False),
        ("docs/**/", "docs/a", False),
        ("**", "a", True),
        ("**", "a/b", False),
        ("a**/b", "a/x/b", False),
        ("a**/b", "axx/b", True),
        ("**/**/b", "x/y/b", True),
        ("**/.hidden/*", "a/.hidden/.b", True),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        (r"\[a\]", "[a]", True),
        (r"a\b", "ab", True),
        (r"\{a,b\}", "{a,b}", True),
        (r"[\]]x", "]x", True),
        ("[^a]b", "cb", True),
        ("[a/b]", "a", False),
        ("a?b", "a/b", False),
        ("{a,b{c,d}}.x", "bd.x", True),
        ("{a,b{c,d}}.x", "b.x", False),
        ("{,src/}*.c", "a.c", True),
        ("{,src/}*.c", "src/a.c", True),
        ("src/{a/b,c}/*", "src/a/b/x", True),
        ("{a", "{a", True),
        ("a}", "a}", True),
        ("{a}", "a", True),
        ("**/x/**/y", "a/x/b/c/y", True),
        ("**/x/**/y", "a/x", False),
        ("*.{rb,py}", "a.py", True),
        ("{a,b}/{c,d}", "b/c", True),
        ("[a-c]?.txt", "bz.txt", True),
        ("[!a]b", "cb", True),
        ("[!a]b", "ab", False),
        ("[", "[", True),
        ("a*b*c", "aXbYbZc", True),
        ("*.log", "x.log.log", True),
        ("a+b(1)*", "a+b(1)x", True),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).fits(path) is expected


@pytest.mark.parametrize(
    ("text", "path"),
    [("a/b", "a/b"), ("/a//b/", "a/b"), ("a/./b/../c", "a/c"), ("..", None), ("a/../../b", None), ("", "")],
)
def test_normal_path(text: str, path: str | None) -> None:
    assert normal_path(text) == path


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("ci/*.yml", "ci/a.yml", True),
        ("ci/*.yml", "ci/a/b.yml", False),
        ("ci/**.yml", "ci/a/b.yml", True),
        ("ci/**.yml", "ci/a.yml", True),
        ("ci/**/*.yml", "ci/a/b.yml", True),
        ("ci/**/*.yml", "ci/a.yml", False),
        ("**/ci.yml", "a/b/ci.yml", True),
        ("**/ci.yml", "ci.yml", False),
        ("**ci.yml", "a/ci.yml", True),
        ("***.yml", "a/b.yml", True),
        ("a?*.yml", "a?b.yml", True),
        ("a?*.yml", "axb.yml", False),
        ("{a,b}*.yml", "a.yml", False),
        ("[ab]*.yml", "[ab]c.yml", True),
        ("a.*", "axyml", False),
    ],
)
def test_patterns_of_includes(pattern: str, path: str, expected: bool) -> None:
    assert match_paths(pattern, [path]) == ([path] if expected else [])


def test_only_a_star_makes_a_pattern_of_an_include() -> None:
    names = ("a.yml", "a*.yml", "**", "a?.yml", "{a,b}.yml", "[a].yml")
    assert [is_include_glob(name) for name in names] == [False, True, True, False, False, False]


def test_matching_keeps_the_order_of_paths() -> None:
    assert match_paths("*.b", ["z.b", "c.c", "a.b"]) == ["z.b", "a.b"]


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 50 + "x", "{a,b}" * 200, "?" * 1000 + "*" * 1000])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    assert not Glob(pattern).fits("a" * 300 + "/" + "a/" * 100 + "a")
    assert not match_paths(pattern, ["a" * 300 + "/" + "a/" * 100 + "a"])
    assert time.process_time() - began < 0.5
