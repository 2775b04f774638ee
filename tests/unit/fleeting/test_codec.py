"""Values are the same after conversion to wire messages and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleeting.codec import (
    connect_info_from_wire,
    connect_info_to_wire,
    connector_from_wire,
    connector_to_wire,
    info_from_wire,
    info_to_wire,
    state_from_wire,
    state_to_wire,
)
from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.port import ConnectInfo, Connector, InstanceState, ProviderInfo
from remuda.wire.proto import fleeting_pb2 as pb

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SECONDS = st.integers(1, 10**6).map(lambda number: number / 1000)
CONNECTORS = st.builds(
    Connector,
    os=TEXT,
    arch=TEXT,
    protocol=TEXT,
    port=st.integers(0, 65535),
    username=TEXT,
    password=TEXT,
    key=st.binary(max_size=50),
    use_static_credentials=st.booleans(),
    keepalive_seconds=SECONDS,
    timeout_seconds=SECONDS,
)


@given(CONNECTORS, TEXT, TEXT, st.none() | st.integers(1, 2**40).map(float))
def test_connect_info_round_trip(connector: Connector, internal: str, external: str, expires: float | None) -> None:
    info = ConnectInfo(connector=connector, internal_addr=internal, external_addr=external, expires_at=expires)
    sent = pb.ConnectInfoResponse.FromString(connect_info_to_wire(info).SerializeToString())
    assert connect_info_from_wire(sent) == info


@given(st.builds(ProviderInfo, id=TEXT, max_size=st.integers(0, 2**32 - 1), capabilities=st.frozensets(TEXT)))
def test_provider_info_round_trip(info: ProviderInfo) -> None:
    assert info_from_wire(info_to_wire(info)) == info


@pytest.mark.parametrize("size", [2**63, -1])
def test_sizes_are_limited_to_the_range_of_the_wire(size: int) -> None:
    assert info_to_wire(ProviderInfo(id="a", max_size=size)).max_size == min(max(size, 0), 2**32 - 1)


def test_states_have_upstreams_numbers() -> None:
    names = ["creating", "running", "deleting", "deleted", "timeout", "suspending", "suspended", "resuming"]
    assert [state_from_wire(number) for number in range(8)] == names
    for is_ours in (False, True):
        assert [state_to_wire(InstanceState(name), is_ours=is_ours) for name in names] == names
    assert state_from_wire(9) is InstanceState.UNKNOWN
    assert state_to_wire(InstanceState.UNKNOWN, is_ours=False) == "creating"
    ours = state_to_wire(InstanceState.UNKNOWN, is_ours=True)
    assert isinstance(ours, int)
    assert state_from_wire(ours) is InstanceState.UNKNOWN


def test_zero_and_negative_times_become_the_defaults() -> None:
    nothing = Connector(keepalive_seconds=0, timeout_seconds=0)
    assert connector_from_wire(connector_to_wire(nothing)) == Connector()
    assert connector_from_wire(pb.ConnectorConfig(keepalive=-1)) == Connector()


def test_an_answer_without_a_connector_is_an_error() -> None:
    with pytest.raises(TemporaryError, match="no connector"):
        connect_info_from_wire(pb.ConnectInfoResponse(InternalAddr="10.0.0.1"))


@pytest.mark.parametrize(
    ("internal", "external", "use_external", "expected"),
    [("i", "e", False, "i"), ("i", "e", True, "e"), ("i", "", True, "i"), ("", "e", True, "e")],
)
def test_the_address_to_dial(internal: str, external: str, use_external: bool, expected: str) -> None:
    info = ConnectInfo(connector=Connector(), internal_addr=internal, external_addr=external)
    assert info.address(use_external=use_external) == expected


def test_no_address_is_refused() -> None:
    with pytest.raises(PermanentError, match="set use_external_addr"):
        ConnectInfo(connector=Connector(), external_addr="e").address()
    with pytest.raises(PermanentError, match="no address"):
        ConnectInfo(connector=Connector()).address(use_external=True)
