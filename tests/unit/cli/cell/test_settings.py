import re
from pathlib import Path

import pytest

from remuda.cell.errors import CellError
from remuda.cli.cell.settings import read_settings, settings_from, warnings_about
from remuda.lib.exits import BadInputError


def write_config(folder: Path, text: str, mode: int = 0o600) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "cell.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        """
        host = "0.0.0.0"
        port = 80
        cell_id = 7
        database = "postgresql://file/db"
        lease_seconds = 90
        silent_seconds = 10
        upkeep_seconds = 5
        keep_latest_artifacts = false
        remote_includes = ["https://a.example/ci/"]
        links = "/links"
        """,
    )
    environment = {"REMUDA_LEASE_SECONDS": "30", "REMUDA_DATABASE": "postgresql://env/db", "REMUDA_PORT": "1"}
    settings = settings_from(environment, data=tmp_path, database="postgresql://option/db", port=8000)
    assert (settings.host, settings.port, settings.cell_id) == ("0.0.0.0", 8000, 7)
    assert settings.database == "postgresql://option/db"
    assert (settings.lease_seconds, settings.silent_seconds, settings.upkeep_seconds) == (30, 10, 5)
    assert settings.keep_latest_artifacts is False
    assert settings.remote_includes == ("https://a.example/ci/",)
    assert settings.links == Path("/links")


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    settings = settings_from({}, data=tmp_path)
    assert (settings.data, settings.host, settings.port, settings.cell_id) == (tmp_path, "127.0.0.1", 8929, 1)


def test_a_file_elsewhere_says_where_the_data_is(tmp_path: Path) -> None:
    file = write_config(tmp_path / "etc", 'data = "../var"\nlease_seconds = 9')
    for settings in (settings_from({}, config=file), settings_from({"REMUDA_CONFIG": str(file)})):
        assert settings.data.resolve() == tmp_path / "var"
        assert settings.lease_seconds == 9
    assert settings_from({}, config=file, data=tmp_path / "mine").data == tmp_path / "mine"
    other = write_config(tmp_path / "other", "lease_seconds = 8")
    assert settings_from({"REMUDA_CONFIG": str(file)}, config=other, data=tmp_path).lease_seconds == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lease_second = 5", "there is no setting lease_second; did you mean lease_seconds?"),
        ("xyzzy = 5", "there is no setting xyzzy"),
        ("[cell]\nlease_seconds = 5", "there is no setting cell"),
        ('lease_seconds = "60"', "lease_seconds: must be a number above 0, for example 60"),
        ("lease_seconds = 0", "lease_seconds: must be a number above 0, for example 60"),
        ("body_limit_bytes = 1.5", "body_limit_bytes: must be a whole number above 0, for example 1048576"),
        ("keep_latest_artifacts = 1", "keep_latest_artifacts: expected `bool`, got `int`"),
        ("links = 1", "links: "),
        ("data = 1", "data: "),
        ("upkeep_seconds = 1\nlease_seconds = x", "is not TOML: Invalid value (at line 2, column 17)"),
        ("lease_seconds = 1\nlease_seconds = 2", "is not TOML: "),
    ],
)
def test_errors_in_the_file_are_reported(tmp_path: Path, text: str, message: str) -> None:
    file = write_config(tmp_path, text)
    with pytest.raises(BadInputError) as caught:
        settings_from({}, data=tmp_path)
    assert str(caught.value).startswith(f"{file}: {message}")


def test_a_file_named_by_option_or_variable_must_be_readable(tmp_path: Path) -> None:
    for environment, option in (({}, tmp_path / "no.toml"), ({"REMUDA_CONFIG": str(tmp_path / "no.toml")}, None)):
        with pytest.raises(BadInputError, match=r"no\.toml: cannot be read: No such file or directory"):
            settings_from(environment, config=option)
    (tmp_path / "cell.toml").mkdir()
    with pytest.raises(BadInputError, match="cannot be read: Is a directory"):
        settings_from({}, data=tmp_path)
    (tmp_path / "cell.toml").rmdir()
    (tmp_path / "cell.toml").write_bytes(b"\xff")
    with pytest.raises(BadInputError, match="is not TOML"):
        settings_from({}, data=tmp_path)


def test_a_warning_about_secrets_that_others_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config(tmp_path, 'admin_token = "a-long-enough-token"')
    settings_from({}, data=tmp_path)
    assert capsys.readouterr().err == ""
    write_config(tmp_path, 'admin_token = "a-long-enough-token"', 0o644)
    assert settings_from({}, data=tmp_path).admin_token == "a-long-enough-token"
    stderr = capsys.readouterr().err
    assert "others on this machine may read it" in stderr
    assert "a-long-enough-token" not in stderr
    write_config(tmp_path, "lease_seconds = 5", 0o644)
    settings_from({}, data=tmp_path)
    assert capsys.readouterr().err == ""


def test_the_source_of_each_setting(tmp_path: Path) -> None:
    file = write_config(tmp_path, "lease_seconds = 5\nsilent_seconds = 10\n")
    _, sources = read_settings({"REMUDA_LEASE_SECONDS": "7", "REMUDA_PORT": "1"}, data=tmp_path, port=80)
    assert sources == {
        "lease_seconds": "REMUDA_LEASE_SECONDS",
        "silent_seconds": str(file),
        "data": "option",
        "port": "option",
    }


def test_settings_of_tables_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        """
        lease_seconds = 9
        [web]
        session_seconds = 60
        public_projects = true
        [web.oidc]
        issuer = "https://login.example"
        client_id = "cell"
        admin_groups = ["ops", "root users"]
        """,
    )
    environment = {
        "REMUDA_WEB_ENABLED": "false",
        "REMUDA_WEB_OIDC_CLIENT_ID": "other",
        "REMUDA_WEB_OIDC_MEMBERS": "devs=acme/tools:developer, all=acme:guest",
    }
    settings, sources = read_settings(environment, data=tmp_path)
    assert (settings.web.enabled, settings.web.session_seconds, settings.web.public_projects) == (False, 60, True)
    oidc = settings.web.oidc
    assert (oidc.issuer, oidc.client_id, oidc.admin_groups) == ("https://login.example", "other", ("ops", "root users"))
    assert [(each.claimed, each.path, each.level) for each in oidc.memberships()] == [
        ("devs", "acme/tools", "developer"),
        ("all", "acme", "guest"),
    ]
    assert sources["web.enabled"] == "REMUDA_WEB_ENABLED"
    assert sources["web.oidc.issuer"] == str(tmp_path / "cell.toml")
    assert warnings_about(environment) == []
    assert warnings_about({"REMUDA_WEB_OIDC_ISUER": "x"}) == [
        "REMUDA_WEB_OIDC_ISUER: there is no such setting; did you mean REMUDA_WEB_OIDC_ISSUER?"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[web]\nenable = true", "there is no setting web.enable; did you mean web.enabled?"),
        ("[web.oidc]\nisuer = 'x'", "there is no setting web.oidc.isuer; did you mean web.oidc.issuer?"),
        ("[wep]\nenabled = true", "there is no setting wep"),
        ("web = true", "web: is a table; write [web] above its settings"),
        ("[web]\nsession_seconds = 0", "web.session_seconds: must be a number above 0"),
        ("[web]\nenabled = 'no'", "web.enabled: expected `bool`"),
    ],
)
def test_a_mistake_in_a_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    write_config(tmp_path, text)
    with pytest.raises(BadInputError, match=re.escape(message)):
        settings_from({}, data=tmp_path)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CLIENT_ID": "x"}, "set web.oidc.issuer"),
        ({"ISSUER": "https://x.example"}, "web.oidc.client_id: is missing"),
        ({"ISSUER": "http://login.example", "CLIENT_ID": "x"}, "must be an address such as https"),
        ({"ISSUER": "https://login.example?x=1", "CLIENT_ID": "x"}, "must be an address such as https"),
        ({"ISSUER": "https://x.example", "CLIENT_ID": "x", "MEMBERS": "devs"}, "must have the form GROUP=PATH:LEVEL"),
        ({"ISSUER": "https://x.example", "CLIENT_ID": "x", "MEMBERS": "d=acme:boss"}, "the level must be one of guest"),
        ({"ISSUER": "https://x.example", "CLIENT_ID": "x", "MEMBERS": "d=acme"}, "has no level"),
        ({"ISSUER": "https://x.example", "CLIENT_ID": "x", "CREATE_USERS": "false"}, "nobody could sign in"),
    ],
)
def test_wrong_settings_of_a_provider_are_refused(tmp_path: Path, variables: dict[str, str], message: str) -> None:
    environment = {f"REMUDA_WEB_OIDC_{name}": value for name, value in variables.items()}
    with pytest.raises(CellError, match=re.escape(message)):
        settings_from(environment, data=tmp_path)


def test_a_client_secret_that_others_can_read_is_warned_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[web.oidc]\nissuer = "https://x.example"\nclient_id = "x"\nclient_secret = "very"'
    write_config(tmp_path, text, mode=0o600)
    settings_from({}, data=tmp_path)
    assert capsys.readouterr().err == ""
    write_config(tmp_path, text, mode=0o644)
    assert settings_from({}, data=tmp_path).web.oidc.client_secret == "very"
    assert "it holds secrets; chmod 600" in capsys.readouterr().err
