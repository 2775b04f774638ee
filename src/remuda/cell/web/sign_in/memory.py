"""What sign-in keeps in memory for all requests: the provider with its keys, and how many refused sign-ins the audit
log has got lately."""

from remuda.cell.core.access.rate_limits import Rate
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.rate_limits import Buckets
from remuda.cell.web.sign_in.provider import Provider

CALLBACK = "/-/sign-in/oidc/callback"
_REFUSALS = Rate(calls=10)
_ALL_REFUSALS = Rate(calls=300)


class SignInMemory:
    def __init__(self, edge: Edge) -> None:
        settings = edge.settings
        self.provider = (
            Provider(settings.web.oidc, f"{settings.url}{CALLBACK}", edge.clock)
            if settings.web.oidc.is_enabled
            else None
        )
        self._clock = edge.clock
        self._refusals = Buckets(_REFUSALS, most=10_000)
        self._all_refusals = Buckets(_ALL_REFUSALS)

    def may_record_refusal(self, address: str) -> bool:
        """Count a refused sign-in from an address. False: too many lately, so that the audit log must not get more."""
        now = self._clock.monotonic()
        verdicts = (self._refusals.spend(address, now), self._all_refusals.spend("", now))
        return all(verdict is None or verdict.allowed for verdict in verdicts)
