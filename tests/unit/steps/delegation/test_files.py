import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.delegation.files import LARGEST_RESULT_BYTES, LONGEST_LOG_LINE, Order, PlainLog, Returns, read_result

STAMP = b"2026-11-15T09:40:00.123456Z "


def format_log(*lines: tuple[str, bytes]) -> bytes:
    return b"".join(STAMP + head.encode() + text + b"\n" for head, text in lines)


def test_equal_orders_have_the_same_id_and_other_orders_another(tmp_path: Path) -> None:
    def write_order(**values: object) -> Order:
        value = {"command": ["ssh", "host"], "key": "1/a/1", "results": "r", "steps": "x", "masks": ["s"]}
        (tmp_path / "order").write_text(json.dumps(value | values))
        return Order.read(tmp_path / "order")

    assert write_order().id == write_order().id
    orders = [write_order(), write_order(key="1/a/2"), write_order(steps="y"), write_order(masks=["t"])]
    assert len({order.id for order in orders}) == 4
    assert write_order().request().id == write_order().id
    assert write_order(variables=[{"key": "A", "value": "1", "file": True}]).request().variables[0].file


def test_returns_are_read_again_after_a_restart(tmp_path: Path) -> None:
    returns = Returns(tmp_path / "r")
    assert not returns.is_started
    returns.note_started()
    returns.add(b'{"seq":1,"event":"started","path":"/a","log_start":5}')
    returns.note_log(77, holds_line_end=True)
    restarted = Returns(tmp_path / "r")
    assert restarted.is_started
    assert (restarted.next_seq, restarted.log_offset) == (2, 77)
    assert restarted.holds_line_end
    assert restarted.end is None
    with (tmp_path / "r").open("ab") as file:
        file.write(b'{"seq":2,"eve')  # cut by a crash
    restarted = Returns(tmp_path / "r")
    assert restarted.next_seq == 2
    restarted.finish(status="failure", reason="script_failure", exit_code=3, message="exit status 3")
    assert Returns(tmp_path / "r").exit_code == 3
    assert "log_start" not in (tmp_path / "r").read_text()


@pytest.mark.parametrize(
    ("status", "exit_code", "expected"),
    [("success", 0, 0), ("cancelled", -1, 143), ("failure", -1, 1), ("failure", 0, 1), ("failure", 255, 255)],
)
def test_exit_codes(tmp_path: Path, status: str, exit_code: int, expected: int) -> None:
    returns = Returns(tmp_path / "r")
    returns.finish(status=status, reason="", exit_code=exit_code, message="")
    assert returns.exit_code == expected


LINES = st.lists(
    st.tuples(
        st.sampled_from(["01O ", "01O+", "00O ", "01E "]),
        st.binary(max_size=6).map(lambda text: text.replace(b"\n", b"~")),
    )
)


@given(lines=LINES, cuts=st.lists(st.integers(0, 400)), restarts=st.booleans())
def test_the_output_does_not_depend_on_the_chunks_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, bytes]], cuts: list[int], restarts: bool
) -> None:
    log, output = format_log(*lines), b""
    results = tmp_path_factory.mktemp("returns") / "r"
    returns = Returns(results)
    plain = PlainLog(returns)
    for end in sorted({cut for cut in cuts if cut <= len(log)} | {len(log)}):
        text, offset, holds = plain.feed(log[plain.offset : end])
        output += text
        returns.note_log(offset, holds_line_end=holds)
        if restarts:
            returns = Returns(results)
            plain = PlainLog(returns)
    assert output == join_output(lines)
    assert (returns.log_offset, returns.holds_line_end) == (len(log), bool(lines))


def join_output(lines: list[tuple[str, bytes]]) -> bytes:
    """The printed text without the end of the last line."""
    parts = [text if head.endswith("+") else b"\n" + text for head, text in lines]
    return b"".join(parts).removeprefix(b"\n") if lines and not lines[0][0].endswith("+") else b"".join(parts)


def test_messages_of_the_other_agent_about_its_job_are_left_out(tmp_path: Path) -> None:
    log = format_log(("01O ", b"Job succeeded"), ("00O ", b"WARNING: x"), ("00O ", b"Job succeeded"))
    assert PlainLog(Returns(tmp_path / "r")).feed(log)[0] == b"Job succeeded\nWARNING: x"


def test_a_log_without_line_feeds_is_refused(tmp_path: Path) -> None:
    log = PlainLog(Returns(tmp_path / "r"))
    piece = b"x" * (LONGEST_LOG_LINE // 2)
    assert log.feed(piece) == log.feed(piece) == (b"", 0, False)
    with pytest.raises(ValueError, match="a line of its log has more than"):
        log.feed(b"x")


def a_result(**values: Any) -> bytes:
    event = {"event": "finished", "path": "/there", "name": "there", "seq": 3}
    return json.dumps(event | values).encode()


def test_a_valid_result_is_read() -> None:
    event = {"outputs": {"a": [1, {"b": None}]}, "exports": {"A_1": "x"}, "environment": "/box"}
    assert read_result(a_result(**event), 3)["outputs"] == event["outputs"]
    assert read_result(b'{"event": "used", "seq": 4, "used": {}}', 4)["event"] == "used"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (b"no json", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an event"),
        (a_result(seq=7), "number 3"),
        (a_result(event=1), "not an event"),
        (a_result(path="there"), "begin with /"),
        (a_result(path=5), "no path"),
        (a_result(name=None), "no name"),
        (a_result(environment=3), "environment"),
        (a_result(outputs=[1]), "outputs"),
        (a_result(exports={"A": 1}), "export"),
        (a_result(exports={"A=B": "x"}), "exports"),
        (a_result(exports={"A": "x\0y"}), "NUL"),
        (a_result(outputs={"a": ["\ud800"]}), "half a surrogate pair"),
        (a_result(exports={"A": "\udc80"}), "half a surrogate pair"),
        (a_result(outputs={"a": float("nan")}), "not JSON"),
        (a_result(outputs={"a": "x" * LARGEST_RESULT_BYTES}), "bytes"),
    ],
    ids=range(18),
)
def test_an_invalid_result_of_another_agent_is_refused(result: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_result(result, 3)
