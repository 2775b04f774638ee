"""Converts values of `port` to messages of the fleeting protocol and back, with its units (nanoseconds, 0 if unset)."""

from remuda.fleeting.errors import TemporaryError
from remuda.fleeting.port import (
    KEEPALIVE_SECONDS,
    TIMEOUT_SECONDS,
    ConnectInfo,
    Connector,
    InstanceState,
    ProviderInfo,
    Settings,
)
from remuda.wire.proto import fleeting_pb2 as pb

NANOSECONDS = 1_000_000_000
MOST_SIZE = 2**32 - 1
UNKNOWN_NUMBER = 1000
"""Number on the wire for UNKNOWN: the plugin could not look the instance up. Other numbers that the protocol does not
define are read as UNKNOWN, too."""
_STATES: dict[int, InstanceState] = {number: InstanceState(name) for name, number in pb.State.items()}


def connector_to_wire(connector: Connector) -> pb.ConnectorConfig:
    """Convert login settings. A keepalive or timeout of 0 becomes the default: gitlab-runner loops or fails with 0."""
    return pb.ConnectorConfig(
        os=connector.os,
        arch=connector.arch,
        protocol=connector.protocol,
        username=connector.username,
        password=connector.password,
        key=connector.key,
        useStaticCredentials=connector.use_static_credentials,
        keepalive=round((connector.keepalive_seconds or KEEPALIVE_SECONDS) * NANOSECONDS),
        timeout=round((connector.timeout_seconds or TIMEOUT_SECONDS) * NANOSECONDS),
        protocol_port=connector.port,
    )


def connector_from_wire(sent: pb.ConnectorConfig) -> Connector:
    return Connector(
        os=sent.os,
        arch=sent.arch,
        protocol=sent.protocol,
        username=sent.username,
        password=sent.password,
        key=sent.key,
        use_static_credentials=sent.useStaticCredentials,
        keepalive_seconds=sent.keepalive / NANOSECONDS if sent.keepalive > 0 else KEEPALIVE_SECONDS,
        timeout_seconds=sent.timeout / NANOSECONDS if sent.timeout > 0 else TIMEOUT_SECONDS,
        port=sent.protocol_port,
    )


def settings_to_wire(settings: Settings) -> pb.Settings:
    return pb.Settings(connector_config=connector_to_wire(settings.connector), remuda_owner=settings.owner)


def settings_from_wire(sent: pb.Settings) -> Settings:
    return Settings(connector=connector_from_wire(sent.connector_config), owner=sent.remuda_owner)


def info_to_wire(info: ProviderInfo) -> pb.InitResponse:
    return pb.InitResponse(
        id=info.id,
        max_size=min(max(info.max_size, 0), MOST_SIZE),
        version=info.version,
        build_info=info.build_info,
        capabilities=sorted(info.capabilities),
    )


def info_from_wire(sent: pb.InitResponse) -> ProviderInfo:
    return ProviderInfo(
        id=sent.id,
        max_size=sent.max_size,
        version=sent.version,
        build_info=sent.build_info,
        capabilities=frozenset(sent.capabilities),
    )


def connect_info_to_wire(info: ConnectInfo) -> pb.ConnectInfoResponse:
    return pb.ConnectInfoResponse(
        connector=connector_to_wire(info.connector),
        ExternalAddr=info.external_addr,
        InternalAddr=info.internal_addr,
        expires=0 if info.expires_at is None else max(int(info.expires_at), 1),
    )


def connect_info_from_wire(sent: pb.ConnectInfoResponse) -> ConnectInfo:
    """Convert the plugin's answer how to connect to an instance. TemporaryError if it has no login settings."""
    if not sent.HasField("connector"):
        raise TemporaryError("the plugin's ConnectInfo has no connector; it has to say how to log in")
    return ConnectInfo(
        connector=connector_from_wire(sent.connector),
        external_addr=sent.ExternalAddr,
        internal_addr=sent.InternalAddr,
        expires_at=float(sent.expires) if sent.expires > 0 else None,
    )


def state_from_wire(number: int) -> InstanceState:
    return _STATES.get(number, InstanceState.UNKNOWN)


def state_to_wire(state: InstanceState, *, is_ours: bool) -> str | int:
    """The protocol's name or number of a state. GitLab's protocol has no UNKNOWN: Remuda as host (`is_ours`) gets
    UNKNOWN_NUMBER; other hosts get `creating`, so that they count the instance and give it no job."""
    if state is InstanceState.UNKNOWN:
        return UNKNOWN_NUMBER if is_ours else InstanceState.CREATING
    return state.value
