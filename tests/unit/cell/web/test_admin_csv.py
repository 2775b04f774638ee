"""The audit log as CSV."""

from remuda.cell.web.pages.admin import write_csv


def test_cells_are_no_formulas() -> None:
    details = {"author_name": "=HYPERLINK(1)", "entity_path": "a,b", "target_details": '"x"\n', "ip_address": None}
    event = {
        "id": 1,
        "created_at": "2030-01-01T00:00:00Z",
        "event_name": "runner_created",
        "author_id": -1,
        "entity_type": "Runner",
        "entity_id": 5,
        "details": details,
    }
    _, line = write_csv([event]).split("\r\n", 1)
    assert line == """1,2030-01-01T00:00:00Z,runner_created,-1,'=HYPERLINK(1),Runner,5,"a,b",\"""x""\n",\r\n"""
