from pathlib import Path

import pytest

from remuda_plugin_static.loans import Loan, Loans


@pytest.fixture
def loans(tmp_path: Path) -> Loans:
    loans = Loans(tmp_path / "state")
    loans.prepare()
    return loans


def test_what_is_given_is_there_until_it_is_taken_back(loans: Loans) -> None:
    [given] = loans.give(lambda out: [Loan(id="", machine="a", owner="me", given_at=5.0)])
    assert given.id.startswith("a-")
    assert Loans(loans.folder).all() == [given]
    assert loans.find(given.id) == given
    assert loans.give(lambda out: [Loan(id="", machine="b")] if not out else []) == []
    assert loans.take_back(given.id)
    assert not loans.take_back(given.id)
    assert loans.all() == []


def test_a_broken_file_keeps_its_machine_back(loans: Loans, caplog: pytest.LogCaptureFixture) -> None:
    (loans.folder / "my-host-0123abcd.json").write_text("{")
    assert [(one.machine, one.is_broken) for one in loans.all()] == [("my-host", True)]
    assert "Remove the file when no job uses the machine" in caplog.text
    assert loans.take_back("my-host-0123abcd")


@pytest.mark.parametrize("name", ["", "../lock", ".", "a/b", "lock"])
def test_only_instances_are_taken_back(loans: Loans, name: str) -> None:
    assert loans.find(name) is None
    assert not loans.take_back(name)
    assert (loans.folder / "lock").exists()
