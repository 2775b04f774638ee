"""`remuda cell admin-token`: a lost administrator's token, with the cell running and stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.cell.errors import CellError
from remuda.cli.main import call

Create = Callable[..., str]


@pytest.fixture
def create(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Create:
    def create_token(*options: str) -> str:
        assert call(["cell", "admin-token", "--data", str(tmp_path / "cell"), *options]) == 0
        return capsys.readouterr().out.strip()

    return create_token


def status_with(cell: ServedCell, token: str) -> int:
    return cell.send("GET", "/api/v4/users", PRIVATE_TOKEN=token).status


def test_a_new_token_counts_at_once_and_the_old_one_stays(cell: ServedCell, create: Create) -> None:
    token = create()
    assert token.startswith("glpat-")
    assert status_with(cell, token) == status_with(cell, cell.token) == 200
    [event, *_] = cell.api("GET", "/audit_events?action=personal_access_token_created").json()
    assert event["details"]["author_name"].startswith("command of ")


def test_other_tokens_can_be_revoked(cell: ServedCell, create: Create) -> None:
    first = create()
    user = cell.api("POST", "/users", {"username": "ada", "name": "Ada", "email": "ada@example.com"}).json()["id"]
    others = cell.api("POST", f"/users/{user}/personal_access_tokens", {"name": "x", "scopes": ["api"]}).json()
    last = create("--revoke-others")
    assert [status_with(cell, token) for token in (cell.token, first, last)] == [401, 401, 200]
    assert cell.send("GET", "/api/v4/user", PRIVATE_TOKEN=others["token"]).status == 200


def test_a_cell_that_is_stopped_and_has_another_number(tmp_path: Path, create: Create) -> None:
    with ServedCell(tmp_path / "cell", cell_id=7):
        pass
    token = create()
    with ServedCell(tmp_path / "cell", cell_id=7) as cell:
        assert status_with(cell, token) == 200


def test_a_folder_without_a_cell(create: Create) -> None:
    with pytest.raises(CellError, match="cell"):
        create()
