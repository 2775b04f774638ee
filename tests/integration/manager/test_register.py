"""Registration of a runner: the server is asked, and the configuration file keeps its comments and other runners."""

from pathlib import Path

import pytest

from remuda.manager.config.load import load
from remuda.manager.errors import ConfigError, RegisterError
from remuda.manager.registration.register import Registration, register
from remuda.testing.coordinator import RUNNER_TOKEN, Coordinator


async def test_a_created_runner_is_verified_and_written(tmp_path: Path, coordinator: Coordinator) -> None:
    path = tmp_path / "deep" / "config.toml"
    registration = Registration(url=coordinator.url, token=RUNNER_TOKEN, name="builder", values={"limit": 3})
    assert await register(path, registration) == 7
    [runner] = load(path).config.runners
    assert (runner.name, runner.token, runner.id, runner.executor, runner.limit) == (
        "builder",
        RUNNER_TOKEN,
        7,
        "shell",
        3,
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert [name for name, _ in coordinator.requests] == ["POST /api/v4/runners/verify"]


async def test_a_registration_token_creates_a_runner(tmp_path: Path, coordinator: Coordinator) -> None:
    path = tmp_path / "config.toml"
    registration = Registration(url=coordinator.url, token="GR1348941registration", tags=("linux", "big"))
    assert await register(path, registration) == 8
    assert load(path).config.runners[0].token == "glrtr-made-by-the-server"


async def test_comments_and_other_runners_survive(tmp_path: Path, coordinator: Coordinator) -> None:
    path = tmp_path / "config.toml"
    before = (
        "# my runners\nconcurrent = 10 # many\n\n[[runners]]\n  # the first one\n"
        '  name = "first"\n  url = "https://other.example"\n  token = "glrt-first"\n  executor = "shell"\n'
    )
    path.write_text(before)
    path.chmod(0o644)
    await register(path, Registration(url=coordinator.url, token=RUNNER_TOKEN, name="second"))
    text = path.read_text()
    assert text.startswith(before)
    assert [runner.name for runner in load(path).config.runners] == ["first", "second"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("glrt-wrong", "http[^ ]*: the token is not valid"),
        ("GR1348941wrong", "http[^ ]*: .*registration tokens"),
    ],
)
async def test_refused_token_changes_nothing(tmp_path: Path, coordinator: Coordinator, token: str, words: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(RegisterError, match=words):
        await register(path, Registration(url=coordinator.url, token=token))
    assert not path.exists()


async def test_an_unreachable_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RegisterError, match="cannot be reached"):
        await register(tmp_path / "config.toml", Registration(url="http://127.0.0.1:1", token=RUNNER_TOKEN))


async def test_an_invalid_file_is_refused_before_the_server_is_asked(tmp_path: Path, coordinator: Coordinator) -> None:
    path = tmp_path / "config.toml"
    for text, words in (
        ("concurrent = 0\n", "concurrent"),
        ("concurrent = \n", "config.toml:1"),
        ("", "^nothing was registered or written, .*executor"),
    ):
        path.write_text(text)
        registration = Registration(url=coordinator.url, token=RUNNER_TOKEN, executor="shell" if text else "kubernetes")
        with pytest.raises(ConfigError, match=words):
            await register(path, registration)
        assert path.read_text() == text
    assert coordinator.requests == []


async def test_the_same_runner_twice_is_refused(tmp_path: Path, coordinator: Coordinator) -> None:
    path = tmp_path / "config.toml"
    registration = Registration(url=coordinator.url, token=RUNNER_TOKEN)
    await register(path, registration)
    with pytest.raises(ConfigError, match=r"config.toml:\d+: .*the same url and token"):
        await register(path, registration)


async def test_a_failed_registration_leaves_no_file(tmp_path: Path, coordinator: Coordinator) -> None:
    with pytest.raises(RegisterError):
        await register(tmp_path / "config.toml", Registration(url=coordinator.url, token="glrt-unknown"))
    assert list(tmp_path.iterdir()) == []


async def test_sections_and_a_template(tmp_path: Path, coordinator: Coordinator) -> None:
    path, template = tmp_path / "config.toml", tmp_path / "template.toml"
    template.write_text(
        '[[runners]]\n  token = "not this"\n  limit = 9\n  [runners.docker]\n    image = "alpine:3"\n'
        '    memory = "1g"\n  [[runners.docker.services]]\n    name = "redis:7"\n'
    )
    registration = Registration(
        url=coordinator.url,
        token=RUNNER_TOKEN,
        executor="docker",
        template=template,
        values={"limit": 2, "docker": {"memory": "2g", "volumes": ["/cache"]}},
    )
    await register(path, registration)
    [runner] = load(path).config.runners
    assert (runner.token, runner.limit, runner.docker.image) == (RUNNER_TOKEN, 2, "alpine:3")
    assert (runner.docker.memory, runner.docker.volumes, runner.docker.services[0].name) == (
        "2g",
        ("/cache",),
        "redis:7",
    )
    template.write_text("concurrent = 1\n")
    with pytest.raises(ConfigError, match=r"exactly one \[\[runners\]\]"):
        await register(path, registration)


async def test_options_of_the_server_are_refused_for_a_created_runner(tmp_path: Path, coordinator: Coordinator) -> None:
    registration = Registration(
        url=coordinator.url, token=RUNNER_TOKEN, tags=("linux",), locked=False, maximum_timeout=600
    )
    with pytest.raises(RegisterError, match="--tag-list, --locked, --maximum-timeout: stored on the server"):
        await register(tmp_path / "config.toml", registration)
    assert coordinator.requests == []


async def test_a_symlink_to_the_file_is_kept(tmp_path: Path, coordinator: Coordinator) -> None:
    real = tmp_path / "real.toml"
    real.write_text("concurrent = 3 # three\n")
    (tmp_path / "config.toml").symlink_to(real)
    await register(tmp_path / "config.toml", Registration(url=coordinator.url, token=RUNNER_TOKEN))
    assert (tmp_path / "config.toml").is_symlink()
    assert real.read_text().startswith("concurrent = 3 # three\n")
    assert len(load(real).config.runners) == 1
