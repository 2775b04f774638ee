from typing import Any

from remuda.cli.runner.listing import rows_of


def a_manager(**changes: Any) -> dict[str, Any]:
    return {
        "system_id": "s_1",
        "version": "17.9",
        "running_jobs": 2,
        "capacity": 4,
        "load": {"running": 3, "free": 1, "saturation": 0.75},
        "status": "online",
        "contacted_at": None,
        "problem": "",
    } | changes


def a_runner(*managers: dict[str, Any], paused: bool = False) -> dict[str, Any]:
    return {
        "id": 7,
        "description": "big",
        "runner_type": "instance_type",
        "tag_list": ["linux", "arm"],
        "paused": paused,
        "status": "never_contacted",
        "contacted_at": None,
        "managers": list(managers),
    }


def test_a_line_for_each_manager() -> None:
    silent = a_manager(system_id="s_2", capacity=None, load=None, running_jobs=0, version=None)
    rows = list(rows_of(a_runner(a_manager(), silent)))
    about = ("7", "big", "instance", "linux, arm")
    assert rows == [
        (*about, "s_1", "17.9", "2/4", "75%", "online", "", ""),
        (*about, "s_2", "", "0", "", "online", "", ""),
    ]


def test_a_runner_without_managers() -> None:
    [row] = rows_of(a_runner(paused=True))
    assert row[4:] == ("", "", "", "", "never_contacted, paused", "", "")


def test_a_manager_that_takes_no_jobs_is_blocked() -> None:
    rows = list(rows_of(a_runner(a_manager(problem="no engine answers"), a_manager(), paused=True)))
    assert [row[-3] for row in rows] == ["online, paused, blocked", "online, paused"]
    assert [row[-1] for row in rows] == ["no engine answers", ""]
