import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.steps.delegation.files import Order, PlainLog, Returns

STAMP = b"2026-11-15T09:40:00.123456Z "


def stamped(*lines: tuple[str, bytes]) -> bytes:
    return b"".join(STAMP + head.encode() + text + b"\n" for head, text in lines)


def test_an_order_gives_the_same_id_again_and_another_for_another_run(tmp_path: Path) -> None:
    def order(**values: object) -> Order:
        value = {"command": ["ssh", "host"], "key": "1/a/1", "results": "r", "steps": "x", "masks": ["s"]}
        (tmp_path / "order").write_text(json.dumps(value | values))
        return Order.read(tmp_path / "order")

    assert order().id == order().id
    assert len({order().id, order(key="1/a/2").id, order(steps="y").id, order(masks=["t"]).id}) == 4
    assert order().request().id == order().id
    assert order(variables=[{"key": "A", "value": "1", "file": True}]).request().variables[0].file


def test_returns_are_found_again(tmp_path: Path) -> None:
    returns = Returns(tmp_path / "r")
    assert not returns.is_started
    returns.note_started()
    returns.add(b'{"seq":1,"event":"started","path":"/a","log_start":5}')
    returns.note_log(77, holds_line_end=True)
    again = Returns(tmp_path / "r")
    assert (again.is_started, again.next_seq, again.log_offset, again.holds_line_end) == (True, 2, 77, True)
    assert again.end is None
    with (tmp_path / "r").open("ab") as file:
        file.write(b'{"seq":2,"eve')  # cut by a crash
    again = Returns(tmp_path / "r")
    assert again.next_seq == 2
    again.finish(status="failure", reason="script_failure", exit_code=3, message="exit status 3")
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
def test_text_is_the_same_however_it_comes(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[str, bytes]], cuts: list[int], restarts: bool
) -> None:
    log, told = stamped(*lines), b""
    results = tmp_path_factory.mktemp("returns") / "r"
    returns = Returns(results)
    plain = PlainLog(returns)
    for place in sorted({cut for cut in cuts if cut <= len(log)} | {len(log)}):
        text, offset, holds = plain.feed(log[plain.offset : place])
        told += text
        returns.note_log(offset, holds_line_end=holds)
        if restarts:
            returns = Returns(results)
            plain = PlainLog(returns)
    assert told == joined(lines)
    assert (returns.log_offset, returns.holds_line_end) == (len(log), bool(lines))


def joined(lines: list[tuple[str, bytes]]) -> bytes:
    """What was printed, but for the end of the last line."""
    parts = [text if head.endswith("+") else b"\n" + text for head, text in lines]
    return b"".join(parts).removeprefix(b"\n") if lines and not lines[0][0].endswith("+") else b"".join(parts)


def test_what_the_agent_there_says_of_its_job_is_left_out(tmp_path: Path) -> None:
    log = stamped(("01O ", b"Job succeeded"), ("00O ", b"WARNING: x"), ("00O ", b"Job succeeded"))
    assert PlainLog(Returns(tmp_path / "r")).feed(log)[0] == b"Job succeeded\nWARNING: x"
