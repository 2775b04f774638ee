import os
from pathlib import Path

import pytest

from remuda.steps.errors import AgentError, BadRequestError
from remuda.steps.policy.job_user import JobUser, hand_over, parse_run_as


def test_an_empty_run_as_is_no_user() -> None:
    assert parse_run_as("", agent_uid=1000) is None


def test_numeric_ids_need_no_account() -> None:
    assert parse_run_as("123456", agent_uid=0) == JobUser(uid=123456, gid=123456)
    assert parse_run_as("123456:77", agent_uid=0) == JobUser(uid=123456, gid=77)


def test_a_name_is_looked_up() -> None:
    person = parse_run_as("nobody", agent_uid=0)
    assert person is not None
    assert person.env["USER"] == "nobody"


@pytest.mark.parametrize("text", ["root", "0", "0:5", "5:0", ":5", "5:", "99999999999", "no-such-user-here"])
def test_root_and_unknown_users_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="run_as: "):
        parse_run_as(text, agent_uid=0)


def test_run_as_requires_an_agent_that_is_root() -> None:
    with pytest.raises(BadRequestError, match="this agent is user 1000, not root"):
        parse_run_as("5", agent_uid=1000)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_hand_over_does_not_follow_links(public_folder: Path) -> None:
    outside, work = public_folder / "outside", public_folder / "work"
    (work / "deep").mkdir(parents=True)
    outside.write_text("mine")
    (work / "deep/file").write_text("x")
    (work / "link").symlink_to(outside)
    os.link(outside, work / "second")
    hand_over(work, JobUser(uid=123456, gid=123456))
    owners = {path.relative_to(public_folder).as_posix(): path.lstat().st_uid for path in public_folder.rglob("*")}
    assert owners == {
        "outside": 0,
        "work": 123456,
        "work/deep": 123456,
        "work/deep/file": 123456,
        "work/link": 123456,
        "work/second": 0,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_inaccessible_folder_is_an_error(public_folder: Path) -> None:
    closed = public_folder / "closed"
    (closed / "work").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(AgentError, match=f"{closed} is closed to others"):
        hand_over(closed / "work", JobUser(uid=123456, gid=123456))
