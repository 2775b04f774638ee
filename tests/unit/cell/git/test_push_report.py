"""The answer of git to a push is passed on unchanged, with text before its end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.git import push_report
from remuda.cell.git.push_report import PushReport


def packet(content: bytes) -> bytes:
    return b"%04x" % (len(content) + 4) + content


REPORT = packet(b"unpack ok\n") + packet(b"ok refs/heads/main\n") + packet(b"ng refs/heads/x declined\n") + b"0000"
ANSWER = packet(b"\x02warming up\n") + packet(b"\x01" + REPORT[:20]) + packet(b"\x01" + REPORT[20:]) + b"0000"


def pass_all(report: PushReport, pieces: list[bytes]) -> bytes:
    return b"".join(report.pass_on(piece) for piece in pieces)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=10))
def test_text_comes_before_the_end_however_the_answer_is_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(ANSWER)]
    report = PushReport()
    sent = pass_all(report, [ANSWER[start:end] for start, end in pairwise(ends)])
    assert sent == ANSWER[:-4]
    assert report.can_show_text
    assert report.accepted_refs() == ["refs/heads/main"]
    assert report.finish("Hello\n") == packet(b"\x02Hello\n") + b"0000"


def test_long_text_is_split_into_packets() -> None:
    report = PushReport()
    report.pass_on(ANSWER)
    rest, text = report.finish("ä" * 5000), b""
    while rest != b"0000":
        size = int(rest[:4], 16)
        assert size <= 1000
        assert rest[4] == 2
        text, rest = text + rest[5:size], rest[size:]
    assert text.decode() == "ä" * 5000


@given(st.binary(max_size=200), st.integers(0, 200))
def test_what_is_not_understood_is_passed_on_unchanged(content: bytes, cut: int) -> None:
    report = PushReport()
    sent = pass_all(report, [content[:cut], content[cut:]])
    assert sent + report.finish() == content
    report.accepted_refs()


@pytest.mark.parametrize(
    "content",
    [
        REPORT,
        packet(b"ERR no") + b"0000",
        ANSWER[:-10],
        b"",
        ANSWER + b"more",
        ANSWER + ANSWER,
        b"0003" + ANSWER,
        b"zzzz",
        b"fatal: no such repository\n",
    ],
)
def test_no_text_for_an_answer_without_bands_or_end(content: bytes) -> None:
    report = PushReport()
    sent = pass_all(report, [content[index : index + 1] for index in range(len(content))])
    assert not report.can_show_text
    assert sent + report.finish("Hello\n") == content


def test_each_byte_of_a_long_report_is_read_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    packet_size = push_report._packet_size

    def note(head: bytes) -> int | None:
        read.append(len(head))
        return packet_size(head)

    monkeypatch.setattr(push_report, "_packet_size", note)
    lines = b"".join(packet(b"ok refs/heads/%d\n" % number) for number in range(2000))
    answer = b"".join(packet(b"\x01" + lines[start : start + 100]) for start in range(0, len(lines), 100)) + b"0000"
    report = PushReport()
    assert report.pass_on(answer) == answer[:-4]
    assert report.accepted_refs() == [f"refs/heads/{number}" for number in range(2000)]
    assert sum(read) < len(answer) + len(lines)


def test_refs_of_a_damaged_report() -> None:
    report = PushReport()
    report.pass_on(packet(b"\x01" + packet(b"ok refs/heads/a\n") + b"ffffok refs/heads/b") + b"0000")
    assert report.accepted_refs()[0] == "refs/heads/a"
