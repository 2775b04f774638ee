"""`remuda user`, `token`, `project` and `group` against a cell in its own process."""

import json
from typing import Any

from tests.support.cells.cell_process import CellProcess


def create_user(remuda: Any, name: str) -> str:
    """Create a user. Returns a token of it."""
    assert remuda("user", "create", name, "--email", f"{name}@example.org").code == 0
    return str(remuda("token", "create", "first", "--user", name).out.strip())


def test_users(remuda: Any, cell: CellProcess) -> None:
    token = create_user(remuda, "anna")
    assert remuda("user", "show", REMUDA_TOKEN=token).out.startswith("user anna\n")
    assert "anna@example.org" in remuda("user", "list").out
    assert remuda("user", "set", "anna", "--name", "Anna Example").out == "user anna is changed\n"
    assert json.loads(remuda("user", "show", "anna", "-o", "json").out)["name"] == "Anna Example"
    again = remuda("user", "create", "anna", "--email", "other@example.org")
    assert (again.code, again.err) == (2, "Username has already been taken")
    assert remuda("user", "block", "anna", "-y").code == 0
    blocked = remuda("user", "show", REMUDA_TOKEN=token)
    assert (blocked.code, "40" in blocked.err.replace(cell.url, "")) == (2, False)
    assert remuda("user", "unblock", "anna").code == 0
    assert remuda("user", "show", REMUDA_TOKEN=token).code == 0
    refused = remuda("user", "create", "bob", "--email", "b@example.org", REMUDA_TOKEN=token)
    assert (refused.code, "your token may not do that" in refused.err) == (2, True)
    assert remuda("user", "delete", "anna").code == 2
    assert remuda("user", "delete", "anna", "--yes").out == "user anna is deleted\n"
    assert remuda("user", "show", "anna").err.startswith("there is no user anna, or you may not see them")


def test_personal_tokens(remuda: Any) -> None:
    token = create_user(remuda, "carl")
    new = remuda("token", "create", "laptop", "--scope", "read_api", "--expires", "2099-06-30", REMUDA_TOKEN=token)
    assert "it is not shown again" in new.err
    [row] = [
        each
        for each in json.loads(remuda("token", "list", "-o", "json", REMUDA_TOKEN=token).out)
        if each["name"] == "laptop"
    ]
    assert (row["scopes"], row["expires_at"]) == (["read_api"], "2099-06-30")
    laptop = new.out.strip()
    assert remuda("user", "show", REMUDA_TOKEN=laptop).code == 0
    assert remuda("token", "rotate", row["id"], REMUDA_TOKEN=token).code == 2
    rotated = remuda("token", "rotate", row["id"], "-y", REMUDA_TOKEN=token).out.strip()
    assert remuda("user", "show", REMUDA_TOKEN=laptop).code == 2
    assert remuda("user", "show", REMUDA_TOKEN=rotated).code == 0
    assert remuda("token", "revoke", "self", "-y", REMUDA_TOKEN=token).out == "token self is revoked\n"
    gone = remuda("user", "show", REMUDA_TOKEN=token)
    assert (gone.code, "does not accept the token" in gone.err) == (2, True)
    secret = remuda("token", "revoke", rotated, "-y")
    assert (secret.code, rotated in secret.err) == (2, False)


def test_tokens_of_a_project(remuda: Any, shop: Any) -> None:
    project = shop()
    place = ("-p", project)
    token = remuda("token", "create", "deploy", "--role", "developer", "--expires", "2099-06-30", *place).out.strip()
    assert remuda("project", "show", project, REMUDA_TOKEN=token).out.startswith(f"project {project}\n")
    [row] = json.loads(remuda("token", "list", *place, "-o", "json").out)
    assert "developer" in remuda("token", "list", *place).out
    assert remuda("token", "revoke", row["id"], "-y", *place).out == f"token {row['id']} is revoked\n"
    assert remuda("token", "list", *place).out.startswith("there are no tokens")
    assert "revoked" in remuda("token", "list", "--all", *place).out


def test_projects(remuda: Any) -> None:
    created = remuda("project", "create", "root/market", "-d", "The market", "--visibility", "internal")
    assert created.out.startswith("project root/market is created; push to it: git push http://")
    assert "root/market" in remuda("project", "list", "--search", "market").out
    assert remuda("project", "set", "root/market", "--pipeline-file", "ci.yml", "--timeout", "900").code == 0
    shown = json.loads(remuda("project", "show", "root/market", "-o", "json").out)
    assert (shown["ci_config_path"], shown["build_timeout"], shown["description"]) == ("ci.yml", 900, "The market")
    taken = remuda("project", "create", "root/market")
    assert (taken.code, taken.err) == (2, "path has already been taken")
    assert remuda("project", "archive", "root/market").out.startswith("project root/market is archived")
    assert "archived" in remuda("project", "list", "--search", "market").out
    assert remuda("project", "unarchive", "root/market").code == 0
    assert remuda("project", "delete", "root/market").code == 2
    assert remuda("project", "delete", "root/market", "-y").out == "project root/market is deleted\n"
    assert remuda("project", "show", "root/market").err.startswith("there is no project root/market on the cell")


def test_groups_and_members(remuda: Any) -> None:
    create_user(remuda, "dora")
    assert remuda("group", "create", "acme").out == "group acme is created\n"
    assert remuda("group", "create", "acme/web", "-d", "Sites").out == "group acme/web is created\n"
    assert remuda("project", "create", "acme/shop").code == 0
    shown = remuda("group", "show", "acme").out
    assert "acme/web" in shown
    assert "acme/shop" in shown
    for command, place, name in (
        ("group", "acme", "the group acme"),
        ("project", "acme/shop", "the project acme/shop"),
    ):
        added = remuda(command, "members", place, "--add", "dora", "--role", "reporter")
        assert added.out == f"dora is reporter of {name}\n"
        changed = remuda(command, "members", place, "--add", "dora", "--role", "maintainer")
        assert changed.out == f"dora is maintainer of {name}\n"
        assert "maintainer" in remuda(command, "members", place).out
        assert remuda(command, "members", place, "--remove", "dora").code == 2
        removed = remuda(command, "members", place, "--remove", "dora", "-y")
        assert removed.out == f"dora is no member of {name} any more\n"
    assert remuda("group", "set", "acme/web", "--name", "Web").out == "group acme/web is changed\n"
    assert "Web" in remuda("group", "list").out
    assert remuda("group", "delete", "acme", "-y").out == "group acme is deleted\n"
    assert remuda("group", "show", "acme").err.startswith("there is no group acme on the cell")
