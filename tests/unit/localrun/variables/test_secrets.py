import io
import os
from pathlib import Path
from typing import Any

import pytest

from remuda.lib.exits import BadInputError
from remuda.localrun.compilation import prepare
from remuda.localrun.options import PipelineOptions
from remuda.localrun.sources.snapshot import Snapshot
from remuda.localrun.upload import Choice, request_of
from remuda.localrun.variables.secrets import Secret, read_secrets

KEY = "-----BEGIN KEY-----\nabcdefgh\nijklmnop\n-----END KEY-----\n"


def write(file: Path, text: str, mode: int = 0o600) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_lines_are_variables_or_name_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "key.pem", KEY)
    file = write(tmp_path / "a.env", '# mine\nTOKEN=abc12345 # not this\nfile:KEY=key.pem\nTEXT="two\\nlines"\n')
    assert read_secrets([file], tmp_path) == {
        "TOKEN": Secret("abc12345"),
        "TEXT": Secret("two\nlines"),
        "KEY": Secret(KEY, is_file=True),
    }
    assert capsys.readouterr().err == ""


def test_maps_are_read_from_yaml_and_json(tmp_path: Path) -> None:
    write(tmp_path / "key.pem", KEY)
    text = "TOKEN: abc12345\nKEY: {file: key.pem}\nCONFIG: {value: some text, type: file}\n"
    expected = {
        "TOKEN": Secret("abc12345"),
        "KEY": Secret(KEY, is_file=True),
        "CONFIG": Secret("some text", is_file=True),
    }
    assert read_secrets([write(tmp_path / "a.yml", text)], tmp_path) == expected
    assert read_secrets([write(tmp_path / "a", '{"TOKEN": "abc12345"}')], tmp_path) == {"TOKEN": Secret("abc12345")}


def test_later_files_win_over_earlier_ones_and_over_the_found_one(make_repo: Any, tmp_path: Path) -> None:
    repo = make_repo(**{".gitignore": ".remuda\n"})
    write(repo.folder / ".remuda" / "secrets.env", "A=found-one\nB=found-one\nC=found-one\n")
    files = [write(tmp_path / "1.env", "B=first-one\nC=first-one\n"), write(tmp_path / "2.env", "C=second-one\n")]
    assert {name: secret.value for name, secret in read_secrets(files, repo.folder).items()} == {
        "A": "found-one",
        "B": "first-one",
        "C": "second-one",
    }


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.env", "A=ok-value\nhunter2\n", r"a.env:2: cannot read this line; write it as NAME=VALUE"),
        ("a.env", 'A="hunter2\n', r"a.env:1: A: the quotes do not end"),
        ("a.env", "\nfile:KEY=missing.pem\n", r"a.env: KEY: .*missing.pem: cannot be read: No such file"),
        ("a.yml", "A: [hunter2\n", r"a.yml:2: is not valid YAML"),
        ("a.yml", "- hunter2\n", r"a.yml: must be a map"),
        ("a.yml", "A: {value: hunter2, kind: file}\n", r"a.yml: A: write a text"),
        ("a.yml", "A: 7\n", r"a.yml: A: write a text \(a number in quotes\)"),
        ("a.yml", "hunter2 x: 7\n", r"a.yml: a name is not valid"),
        ("a.yml", "B: hunter2\nA: 2024-99-99\n", r"a.yml: is not valid YAML"),
        ("a.yml", f"B: hunter2\nA: {'7' * 5000}\n", r"a.yml: is not valid YAML"),
        ("a.yml", f"B: hunter2\nA: {'[' * 3000}\n", r"a.yml: is not valid YAML"),
        ("a.env", f"A={'hunter2' * 2000}\n", r"a.env: A: longer than 10000 characters"),
    ],
)
def test_mistakes_name_the_place_and_show_no_value(tmp_path: Path, name: str, text: str, error: str) -> None:
    with pytest.raises(BadInputError, match=error) as refusal:
        read_secrets([write(tmp_path / name, text)], tmp_path)
    assert "hunter2" not in str(refusal.value)


def test_what_cannot_be_masked_or_can_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "a.env", 'SHORT=abc\nCONTROL="abcdefgh\\ri"\nEMPTY=\nFINE=abcd\n', 0o644)
    secrets = read_secrets([file], tmp_path)
    warnings = capsys.readouterr().err
    assert f"other users of this machine can read {file}; run: chmod 600" in warnings
    assert "SHORT is not masked in logs: it is shorter than 4 characters" in warnings
    assert "EMPTY is not masked" in warnings
    assert "CONTROL is not masked in logs: it has control characters" in warnings
    assert "FINE" not in warnings
    assert "abc" not in warnings
    assert [name for name, secret in secrets.items() if secret.mask_problem] == ["SHORT", "CONTROL", "EMPTY"]


def test_the_found_file_must_be_ignored_by_git(make_repo: Any) -> None:
    repo = make_repo()
    file = write(repo.folder / ".remuda" / "secrets.env", "TOKEN=abc12345\n")
    with pytest.raises(
        BadInputError, match=r"git does not ignore it.*add this line to .*\.gitignore:\n\n +/.remuda/se"
    ):
        read_secrets([], repo.folder)
    repo.put(".gitignore", "/.remuda/secrets.env\n")
    assert read_secrets([], repo.folder) == {"TOKEN": Secret("abc12345")}
    repo.git("add", "--force", str(file))
    with pytest.raises(BadInputError, match=r"git tracks it.*git rm --cached"):
        read_secrets([], repo.folder)


def test_the_offered_line_is_added_to_a_file_that_is_not_utf_8(make_repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo()
    write(repo.folder / ".remuda" / "secrets.env", "TOKEN=abc12345\n")
    ignore = repo.folder / ".gitignore"
    ignore.write_bytes(b"caf\xe9")
    monkeypatch.setattr("remuda.localrun.settings.answers.can_ask", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert read_secrets([], repo.folder) == {"TOKEN": Secret("abc12345")}
    assert ignore.read_bytes() == b"caf\xe9\n/.remuda/secrets.env\n"


def test_a_folder_that_is_a_link_of_the_repository_is_refused(make_repo: Any, tmp_path: Path) -> None:
    repo = make_repo()
    write(tmp_path / "elsewhere" / "secrets.env", "TOKEN=abc12345\n")
    (repo.folder / ".remuda").symlink_to(tmp_path / "elsewhere")
    repo.put(".gitignore", "secrets.env\n")
    with pytest.raises(BadInputError, match="git does not ignore it"):
        read_secrets([], repo.folder)


def test_rules_see_secrets_but_the_request_does_not_have_them(make_repo: Any, tmp_path: Path) -> None:
    repo = make_repo(**{".gitlab-ci_yml": "a: {script: [x], rules: [{if: '$TOKEN == \"a$b12345\"'}]}\n"})
    file = write(tmp_path / "a.env", "TOKEN=a$b12345\nOTHER=abc12345\n")
    compiled = prepare(repo.folder, PipelineOptions(secrets_file=(file,), variable=("OTHER=shown",)))
    assert [job.name for job in compiled.compile().jobs] == ["a"]
    snapshot = Snapshot(git_dir=tmp_path, sha="a" * 40, ref="refs/heads/main")
    assert request_of(compiled, snapshot, Choice()).variables == {"OTHER": "shown"}
    assert compiled.secrets == {"TOKEN": Secret("a$b12345")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("foreign", [".", ".remuda", ".remuda/secrets.env"])
def test_the_found_file_of_another_user_is_refused(make_repo: Any, foreign: str) -> None:
    repo = make_repo()
    write(repo.folder / ".remuda" / "secrets.env", "BASH_ENV=/tmp/evil.sh\n")
    repo.put(".gitignore", "/.remuda/secrets.env\n")
    os.chown(repo.folder / foreign, 65534, 65534)
    with pytest.raises(BadInputError, match=r"secrets\.env: .* belongs to the user"):
        read_secrets([], repo.folder)


def test_a_value_of_a_secret_stays_secret_under_any_name(make_repo: Any, tmp_path: Path) -> None:
    repo = make_repo(**{".gitlab-ci_yml": "a: {script: [x]}\n"})
    file = write(tmp_path / "a.env", "TOKEN=abc12345\nPIN=1\nREPLACED=tip-top-secret\n")
    variable = ("TOKEN=abc12345", "COPY=abc12345", "ONE=1", "REPLACED=shown")
    compiled = prepare(repo.folder, PipelineOptions(secrets_file=(file,), variable=variable))
    snapshot = Snapshot(git_dir=tmp_path, sha="a" * 40, ref="refs/heads/main")
    assert request_of(compiled, snapshot, Choice()).variables == {"ONE": "1", "REPLACED": "shown"}
    assert {name: secret.value for name, secret in compiled.secrets.items()} == {
        "TOKEN": "abc12345",
        "COPY": "abc12345",
        "PIN": "1",
    }
    # This process also masks what no job gets.
    assert compiled.masked_values == {"abc12345", "tip-top-secret"}


def test_no_file_is_found_without_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / ".remuda" / "secrets.env", "BASH_ENV=evil.sh\n")
    assert read_secrets([], tmp_path) == {}
    assert f"{file} is not used, because its folder is in no git repository; give --secrets" in capsys.readouterr().err
    assert read_secrets([file], tmp_path) == {"BASH_ENV": Secret("evil.sh")}


@pytest.mark.parametrize("path", ["../../key.pem", "~/key.pem", "link/key.pem"])
def test_the_found_file_names_only_files_of_its_repository(
    make_repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    repo = make_repo(**{".gitignore": ".remuda\n"})
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "key.pem", KEY)
    write(repo.folder / "key.pem", KEY)
    found = write(repo.folder / ".remuda" / "secrets.env", "file:KEY=../key.pem\n")
    (repo.folder / ".remuda" / "link").symlink_to(tmp_path)
    assert read_secrets([], repo.folder) == {"KEY": Secret(KEY, is_file=True)}
    write(found, f"file:KEY={path}\n")
    with pytest.raises(
        BadInputError, match=r"secrets\.env: KEY: .*key\.pem is not in the repository; .*--secrets-file"
    ):
        read_secrets([], repo.folder)
