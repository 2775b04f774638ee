from pathlib import Path

from remuda.lib.clock import VirtualClock
from remuda.steps.job_files.job_usage import Account, folder_size
from remuda.steps.job_files.journal import Journal
from remuda.wire.proto.agent_pb2 import StartRequest


def test_times_are_added_and_the_largest_memory_peak_counts() -> None:
    account = Account()
    account.add({"cpu_user_seconds": 1.5, "cpu_system_seconds": 0.25, "max_rss_bytes": None})
    account.add({"cpu_user_seconds": 0.5, "max_rss_bytes": 500, "io_read_bytes": 10, "io_write_bytes": 20})
    account.add({"cpu_user_seconds": 0.5, "max_rss_bytes": 400, "io_write_bytes": 5})
    account.add({})
    assert account.total() == {
        "cpu_user_seconds": 2.5,
        "cpu_system_seconds": 0.25,
        "disk_read_bytes": 10,
        "disk_written_bytes": 25,
        "memory_peak_bytes": 500,
        "source": "rusage",
    }
    account.add({"memory_peak_bytes": 600, "max_rss_bytes": 700})
    assert account.total(7) == account.total() | {"memory_peak_bytes": 600, "source": "cgroup", "work_dir_bytes": 7}


def test_values_of_the_whole_job_count_where_they_are_larger() -> None:
    account = Account()
    account.add({"cpu_user_seconds": 1.5, "cpu_system_seconds": 0.25, "memory_peak_bytes": 500})
    account.count_whole({})
    assert account.total() == {
        "cpu_user_seconds": 1.5,
        "cpu_system_seconds": 0.25,
        "memory_peak_bytes": 500,
        "source": "cgroup",
    }
    account.count_whole({"cpu_user_seconds": 2.0, "cpu_system_seconds": 0.1, "memory_peak_bytes": 900})
    total = account.total()
    assert (total["cpu_user_seconds"], total["cpu_system_seconds"], total["memory_peak_bytes"]) == (2.0, 0.25, 900)


def test_a_job_without_steps_has_used_nothing() -> None:
    assert Account().total() == {}


def test_the_size_of_a_folder_is_measured(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/")
    size = folder_size(tmp_path)
    assert size is not None
    assert 100_000 <= size < 200_000
    assert folder_size(tmp_path / "missing") is None
    assert folder_size(tmp_path, within_seconds=-1) is None


def test_a_reopened_journal_has_the_usage(tmp_path: Path) -> None:
    now = VirtualClock().now()
    journal = Journal.create(tmp_path, StartRequest(id="1"), now)
    journal.record({"event": "finish"}, {"event": "finished", "usage": {"cpu_user_seconds": 1.5}})
    journal.record_used(journal.account.total(), now)
    reopened = Journal(journal.folder)
    assert reopened.account.total() == journal.account.total() == {"cpu_user_seconds": 1.5, "source": "rusage"}
    reopened.record_used(reopened.account.total(), now)
    assert len(reopened.results) == 2
    journal.shut()
    reopened.shut()
