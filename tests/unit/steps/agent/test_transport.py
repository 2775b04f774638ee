import stat
from pathlib import Path

import pytest

from remuda.steps.agent.transport import open_transport
from remuda.steps.errors import AgentError
from remuda.steps.job_files.data_folder import default_data, endpoint_in, socket_in


def test_a_unix_socket_is_private_to_the_user(tmp_path: Path) -> None:
    with open_transport(tmp_path, listen_at=None, socket=None) as transport:
        assert transport.kind == "unix"
        assert not transport.token
        transport.announce(tmp_path)
        assert socket_in(tmp_path) == Path(transport.address) == tmp_path / "agent.sock"
        assert stat.S_IMODE((tmp_path / "agent.sock").stat().st_mode) == 0o600
    assert not list(tmp_path.iterdir())


def test_tcp_has_a_new_token_every_time(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        with open_transport(tmp_path, listen_at="tcp", socket=None) as transport:
            transport.announce(tmp_path)
            endpoint = endpoint_in(tmp_path)
            assert endpoint is not None
            assert transport.address == f"tcp:{endpoint['host']}:{endpoint['port']}"
            assert stat.S_IMODE((tmp_path / "endpoint").stat().st_mode) == 0o600
            tokens.add(endpoint["token"])
        assert endpoint_in(tmp_path) is None
    assert len(tokens) == 2


@pytest.mark.parametrize(
    "address", ["tcp:0.0.0.0:1", "tcp:10.0.0.1:1", "tcp:host:1", "tcp:127.0.0.1:x", "pipe", "unix:x"]
)
def test_other_listen_addresses_are_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(AgentError, match="--listen"), open_transport(tmp_path, listen_at=address, socket=None):
        pass


def test_a_socket_path_is_only_allowed_with_unix(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="--socket only with unix"):
        open_transport(tmp_path, listen_at="tcp", socket=tmp_path / "s").__enter__()


def test_the_socket_of_a_killed_agent_is_replaced_and_other_files_are_kept(tmp_path: Path) -> None:
    context = open_transport(tmp_path, listen_at=None, socket=None)
    context.__enter__().listener.close()
    with open_transport(tmp_path, listen_at=None, socket=None):
        pass
    (tmp_path / "thesis").write_text("text")
    with pytest.raises(AgentError, match="something else than a socket"):
        open_transport(tmp_path, listen_at=None, socket=tmp_path / "thesis").__enter__()
    assert (tmp_path / "thesis").read_text() == "text"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/x"}, "/state/remuda-agent"),
        ({"HOME": "/home/x"}, "/home/x/.local/state/remuda-agent"),
    ],
)
def test_the_default_data_folder(environ: dict[str, str], expected: str) -> None:
    assert default_data(environ) == Path(expected)
    assert default_data({}).name.startswith("remuda-agent-")
