"""Secrets of local runs: masked in logs, as files, from `.remuda/secrets.env` and `--secrets-file`."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone
from tests.support.user_terminal import UserTerminal

KEY = "-----BEGIN KEY-----\nabcdefgh01\nijklmnop02\n-----END KEY-----\n"
PIPELINE = """
show:
  variables: {TOKEN: of-the-file}
  script:
    - echo "token=$TOKEN shown=$SHOWN short=$PIN"
    - cat "$KEY"
    - test -f "$KEY"
    - printf %s "$TOKEN" | base64 > token.b64
  artifacts: {paths: [token.b64]}
"""


@pytest.fixture
def shop(world: Any) -> Clone:
    clone = Clone(world.folder / "shop", world.environment())
    clone.git("init", "--quiet", "--initial-branch=main")
    clone.commit(**{".gitlab-ci.yml": PIPELINE, ".gitignore": "/.remuda/\n"})
    return clone


def write_secrets(folder: Path, text: str) -> Path:
    (folder / ".remuda").mkdir()
    file = folder / ".remuda" / "secrets.env"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("options", [(), ("--data", "kept")], ids=["temporary", "kept"])
def test_secrets_are_masked_and_variables_are_shown(world: Any, shop: Clone, options: tuple[str, ...]) -> None:
    write_secrets(shop.folder, "TOKEN=tip top $ecret\nPIN=123\nfile:KEY=key.pem\n")
    (shop.folder / ".remuda" / "key.pem").write_text(KEY)
    for _ in range(2):
        result = world.remuda(
            *("run", shop.folder, "--logs", "--variable", "SHOWN=visible", "--artifacts", "out", *options)
        )
        assert result.code == 0, result.out + result.err
        assert "token=[MASKED] shown=visible short=123" in result.out
        assert "PIN is not masked in logs: it is shorter than 4 characters" in result.err
        for part in ("tip top", "abcdefgh01", "ijklmnop02", "BEGIN KEY"):
            assert part not in result.out + result.err
        encoded = (world.folder / "out" / "show" / "token.b64").read_bytes()
        decoded = subprocess.run(["base64", "-d"], input=encoded, capture_output=True, check=True).stdout
        assert decoded == b"tip top $ecret"
    # What is not in the file any more is gone, also from kept data.
    (shop.folder / ".remuda" / "secrets.env").write_text("PIN=1234567\n")
    result = world.remuda("run", shop.folder, "--logs", *options)
    assert "token=of-the-file" in result.out
    assert "short=[MASKED]" in result.out
    assert shop.git("status", "--porcelain") == ""


def test_secrets_of_a_file_that_is_named(world: Any, shop: Clone) -> None:
    (world.folder / "ci.json").write_text('{"TOKEN": "abc12345", "KEY": {"value": "file text", "type": "file"}}')
    result = world.remuda("run", shop.folder, "--logs", "--secrets-file", "ci.json")
    assert result.code == 0, result.out + result.err
    assert "token=[MASKED]" in result.out
    assert "file text" not in result.out
    assert "other users of this machine can read ci.json; run: chmod 600 ci.json" in result.err


def test_a_file_that_git_does_not_ignore_is_refused_and_the_line_is_offered(world: Any, shop: Clone) -> None:
    shop.commit(**{".gitignore": "other"})
    write_secrets(shop.folder, "TOKEN=abc12345\n")
    for words in (("run",), ("pipeline", "lint")):
        result = world.remuda(*words, shop.folder)
        assert result.code == 2
        assert "git does not ignore it" in result.err
        assert "\n    /.remuda/secrets.env" in result.err
        assert "abc12345" not in result.out + result.err
    terminal = UserTerminal("pipeline", "lint", str(shop.folder), env=world.environment())
    try:
        terminal.read_until("Add it to .gitignore? [y/N] ")
        terminal.type("y\n")
        terminal.read_until("is good")
        assert terminal.wait_for_exit() == 0
    finally:
        terminal.close()
    assert (shop.folder / ".gitignore").read_text() == "other\n/.remuda/secrets.env\n"


def test_output_of_commands_shows_no_secret(world: Any, shop: Clone, make_secret_pipeline: Callable[[], None]) -> None:
    make_secret_pipeline()
    for words in (
        ("run", "--list"),
        ("run", "--list", "--output", "json"),
        ("pipeline", "show"),
        ("pipeline", "show", "--output", "json"),
        ("pipeline", "show", "--output", "yaml"),
        ("pipeline", "show", "--job", "deploy"),
        ("pipeline", "graph"),
        ("pipeline", "lint"),
        ("run",),
    ):
        result = world.remuda(*words, cwd=shop.folder)
        assert result.code == 0, (words, result.err)
        assert "abc12345" not in result.out + result.err, words


@pytest.fixture
def make_secret_pipeline(shop: Clone) -> Callable[[], None]:
    """A function that commits a pipeline whose names depend on a secret."""

    def make() -> None:
        shop.commit(
            **{
                ".gitlab-ci.yml": "workflow: {name: 'for $TOKEN'}\n"
                "deploy:\n"
                "  environment: {name: 'review/$TOKEN', url: 'https://$TOKEN.example'}\n"
                "  rules: [{if: $TOKEN}]\n"
                "  script: [echo]\n"
            }
        )
        write_secrets(shop.folder, "TOKEN=abc12345\n")

    return make


def test_many_secrets_are_replaced_in_kept_data(world: Any, shop: Clone) -> None:
    """More than one page of the cell's list of variables."""
    names = [f"SECRET_{number}" for number in range(25)]
    lines = "".join(f"{name}=value-of-{name}\n" for name in names)
    file = write_secrets(shop.folder, f"{lines}file:KEY=key.pem\n")
    (shop.folder / ".remuda" / "key.pem").write_text(KEY)
    shop.commit(
        **{".gitlab-ci.yml": "show: {script: ['env | grep -c ^SECRET_ || true']}\n", ".gitignore": "/.remuda\n"}
    )
    for _ in range(2):
        result = world.remuda("run", shop.folder, "--logs", "--data", "kept")
        assert result.code == 0, result.out + result.err
        assert "\n25\n" in result.out
    file.write_text("OTHER=value-of-another\n")
    result = world.remuda("run", shop.folder, "--logs", "--data", "kept")
    assert "\n0\n" in result.out
