"""The rows of a job's step tree."""

from typing import Any

from remuda.cell.web.step_rows import LONGEST_TEXT, job_usage, step_rows

NOW = 1763200100.0


def event(kind: str, path: str, began: int, ended: int = 0, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"event": kind, "path": path, "name": path.rpartition("/")[2], "attempt": 1}
    fields["time"] = f"2026-11-15T10:10:{began:02}Z"
    if kind == "finished":
        fields |= {"status": "success", "started_at": fields["time"], "finished_at": f"2026-11-15T10:10:{ended:02}Z"}
    return fields | more


def test_a_tree_with_times_in_percent() -> None:
    [outer, last] = step_rows(
        [
            event("started", "/outer", 0),
            event("started", "/outer/+open", 0),
            event("finished", "/outer/+open", 0, 10),
            event("finished", "/outer", 0, 20),
            event("started", "/step_script", 20),
            event("finished", "/step_script", 20, 40, status="failure", exit_code=3, error_kind="exit", error="exit 3"),
        ],
        NOW,
    )
    assert (outer.name, outer.offset, outer.width, outer.seconds) == ("outer", 0.0, 50.0, 20.0)
    assert [inner.name for inner in outer.steps] == ["outer open"]
    assert (last.name, last.status, last.offset, last.width) == ("script", "failed", 50.0, 50.0)
    assert (last.exit_code, last.error, last.is_deciding) == (3, "exit 3", True)


def test_a_running_step_and_earlier_attempts() -> None:
    [row] = step_rows(
        [
            event("started", "/a", 0),
            event("finished", "/a", 0, 5, status="failure", retried=True),
            event("started", "/a", 6, attempt=2),
        ],
        NOW,
    )
    assert (row.status, row.since is not None) == ("running", True)
    assert [attempt.status for attempt in row.attempts] == ["failed"]


def test_usage_and_outputs_are_facts() -> None:
    usage = {"cpu_user_seconds": 1.5, "cpu_system_seconds": 0.5, "memory_peak_bytes": 2048, "io_read_bytes": 0}
    [row] = step_rows([event("finished", "/a", 0, 1, usage=usage, outputs={"key": "main"})], NOW)
    assert dict(row.facts) == {"Processor": "2.0 s", "Memory": "2.0 KiB", "Disk read": "0 bytes", "Outputs": "key=main"}


def test_results_of_other_types_do_no_harm() -> None:
    strange: list[Any] = [
        None,
        3,
        "x",
        event("finished", "/a", 0, 1, usage=[1], outputs="x", policy=3, exit_code="3", error={"a": 1}, reference=None),
        event("finished", "/b", 0, 1, usage={"cpu_user_seconds": "x", "memory_peak_bytes": None}, error="x" * 5000),
        event("finished", "/c", 0, 1, started_at=3, finished_at=[], status=None),
        {"event": "finished"},
    ]
    rows = step_rows(strange, NOW)
    assert [row.path for row in rows] == ["/a", "/b", "/c", ""]
    assert rows[0].exit_code is None
    assert len(rows[1].error) == LONGEST_TEXT + 1
    assert job_usage(strange) == []


def test_what_the_whole_job_used() -> None:
    used = {"event": "used", "used": {"cpu_user_seconds": 61, "network_sent_bytes": 1024, "memory_peak_bytes": "x"}}
    assert job_usage([used]) == [("Processor", "1 min 1 s"), ("Network sent", "1.0 KiB")]
