from pathlib import Path

import pytest

from remuda_plugin_static.loans import Loan, Loans


@pytest.fixture
def loans(tmp_path: Path) -> Loans:
    loans = Loans(tmp_path / "state")
    loans.prepare()
    return loans


def test_a_loan_lasts_until_it_is_taken_back(loans: Loans) -> None:
    [loan] = loans.give(lambda present: [Loan(id="", machine="a", owner="me", given_at=5.0)])
    assert loan.id.startswith("a-")
    assert Loans(loans.folder).all() == [loan]
    assert loans.find(loan.id) == loan
    assert loans.give(lambda present: [Loan(id="", machine="b")] if not present else []) == []
    assert loans.take_back(loan.id)
    assert not loans.take_back(loan.id)
    assert loans.all() == []


def test_the_machine_of_a_broken_file_is_not_handed_out(loans: Loans, caplog: pytest.LogCaptureFixture) -> None:
    (loans.folder / "my-host-0123abcd.json").write_text("{")
    assert [(loan.machine, loan.is_broken) for loan in loans.all()] == [("my-host", True)]
    assert "Remove the file when no job uses the machine" in caplog.text
    assert loans.take_back("my-host-0123abcd")


@pytest.mark.parametrize("name", ["", "../lock", ".", "a/b", "lock"])
def test_only_instances_are_taken_back(loans: Loans, name: str) -> None:
    assert loans.find(name) is None
    assert not loans.take_back(name)
    assert (loans.folder / "lock").exists()
