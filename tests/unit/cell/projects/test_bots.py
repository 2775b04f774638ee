"""When the bot of an access token is removed."""

from remuda.cell.projects.bots import KEPT_SECONDS, is_unused
from remuda.cell.values import UserToken

NOW = 1_800_000_000.0
LONG_AGO = NOW - KEPT_SECONDS - 1


def a_token(**fields: object) -> UserToken:
    return UserToken(token_hash="h", name="t", **fields)  # type: ignore[arg-type]


def test_a_usable_or_recent_token_keeps_the_bot() -> None:
    assert not is_unused([a_token()], NOW)
    assert not is_unused([a_token(expires_at=NOW + 1)], NOW)
    assert not is_unused([a_token(expires_at=NOW - 1)], NOW), "it is still listed as inactive"
    assert not is_unused([a_token(revoked=True, created_at=LONG_AGO, last_used_at=NOW - 5)], NOW)
    assert not is_unused([a_token(revoked=True, created_at=LONG_AGO), a_token(expires_at=NOW + 1)], NOW), "rotated"


def test_a_bot_whose_tokens_all_ended_long_ago_is_unused() -> None:
    assert is_unused([a_token(expires_at=LONG_AGO), a_token(revoked=True, created_at=LONG_AGO)], NOW)
    assert is_unused([], NOW)
