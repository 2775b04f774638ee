"""Parsing of JUnit reports in pieces: usual, damaged and hostile ones."""

import gzip
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.junit import (
    FILES_LIMIT,
    KEPT_CHARACTERS,
    NAMES_LIMIT,
    JunitLimits,
    JunitReader,
    TestCase,
    UnreadableError,
)

compress = partial(gzip.compress, mtime=0)
"""Compresses without a time stamp, so that the ids of parametrized tests are always the same."""
PYTEST = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="0.1">
<testcase classname="tests.test_a" name="test_good" time="0.5" />
<testcase classname="tests.test_a" name="test_bad" file="tests/test_a.py" line="3" time="1,000.25">
<failure message="assert 1 == 2">def test_bad():
&gt;       assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_skipped" time="nan"><skipped message="no">why</skipped></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure">ImportError</error>
<failure>second</failure><system-out>noise</system-out></testcase>
</testsuite></testsuites>"""


def cases(*pieces: bytes, limit: int = 1_000_000, is_packed: bool = True) -> list[TestCase]:
    parsed: list[TestCase] = []
    reader = JunitReader(parsed.append, limits=JunitLimits(bytes=limit), is_packed=is_packed)
    for piece in pieces:
        reader.feed(piece)
    reader.close()
    return parsed


def test_every_case_is_reported() -> None:
    good, bad, skipped, error = cases(compress(PYTEST))
    assert good == TestCase(status="success", name="test_good", classname="tests.test_a", suite="pytest", seconds=0.5)
    assert (bad.status, bad.file, bad.line, bad.seconds) == ("failed", "tests/test_a.py", 3, 1000.25)
    assert bad.output == "def test_bad():\n>       assert 1 == 2"
    assert (skipped.status, skipped.output, skipped.seconds) == ("skipped", "no\nwhy", 0.0)
    assert (error.status, error.output) == ("error", "collection failure\nImportError")


def test_a_report_may_be_plain() -> None:
    assert len(cases(PYTEST, is_packed=False)) == 4


@given(st.lists(st.integers(1, 400), max_size=8), st.integers(0, 3), st.booleans())
def test_the_cuts_between_pieces_do_not_matter(cuts: list[int], more: int, padded: bool) -> None:
    data = compress(PYTEST) * (more + 1) + compress(b" \n") + b"\0" * (7 if padded else 0)
    pieces = []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    assert len(cases(*pieces, data)) == 4 * (more + 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (compress(PYTEST)[:-20], "cut off"),
        (b"rubbish", "damaged"),
        (compress(PYTEST[:-20]), "not valid XML"),
        (compress(b"{}"), "not valid XML"),
        (compress(b'<?xml version="1.0" encoding="klingon"?><a/>'), "encoding|not valid XML"),
        (compress(b"<testsuite>" + b" " * 2_000_000 + b"</testsuite>"), "larger than 1000000 bytes"),
        (compress(b'<!DOCTYPE a [<!ENTITY b "bbbb">]><testsuite>&b;</testsuite>'), "entities"),
        (compress(b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'), "entities"),
        (compress(b'<!DOCTYPE a [<!ENTITY % b SYSTEM "http://x/y"> %b;]><a/>'), "entities"),
    ],
)
def test_unreadable_reports_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableError, match=why):
        cases(data)


def test_empty_reports_have_no_cases() -> None:
    assert cases() == []
    assert cases(compress(b"")) == []


def test_long_texts_are_cut() -> None:
    text = b"x" * (KEPT_CHARACTERS * 3)
    (case,) = cases(
        PYTEST[:0] + b'<testcase name="' + text + b'"><failure>' + text + b"</failure></testcase>", is_packed=False
    )
    assert case.output is not None
    assert (len(case.output), len(case.name)) == (KEPT_CHARACTERS, 1024)


def refusal(text: bytes, **limits: int) -> str:
    reader = JunitReader(lambda case: None, limits=JunitLimits(**{"bytes": 10**8, **limits}), is_packed=False)
    with pytest.raises(UnreadableError) as caught:
        reader.feed(text)
    return str(caught.value)


def test_the_memory_of_the_parser_is_bounded() -> None:
    assert refusal(b"<a>" * 101 + b"</a>" * 101) == "its elements are nested deeper than 100 levels"
    assert refusal(b"<a>" + b"<b/>" * 10 + b"</a>", elements=10) == "it has more than 10 elements"
    names = b"".join(b"<n%d/>" % number for number in range(NAMES_LIMIT + 1))
    assert refusal(b"<a>" + names + b"</a>") == "it has more than 20000 different names of elements and attributes"
    for large in (b'<b c="' + b"x" * 3_000_000 + b'"/>', b"<!--" + b"x" * 3_000_000 + b"-->"):
        assert refusal(b"<a>" + large + b"</a>") == "it has a tag or comment larger than 1 MiB"


def test_a_tag_of_a_mebibyte_is_read() -> None:
    parsed: list[TestCase] = []
    reader = JunitReader(parsed.append, limits=JunitLimits(bytes=10**8), is_packed=False)
    reader.feed(b'<a><testcase name="x"><failure message="' + b"y" * (1 << 20) + b'"/></testcase></a>')
    reader.close()
    assert parsed[0].output == "y" * KEPT_CHARACTERS


def test_very_many_empty_files_are_refused() -> None:
    reader = JunitReader(lambda case: None, limits=JunitLimits(bytes=10**8))
    with pytest.raises(UnreadableError, match="more than 20000 files"):
        reader.feed(gzip.compress(b"", mtime=0) * (FILES_LIMIT + 1))
