"""The settings that administrators see: sources, and no secrets."""

from pathlib import Path

from remuda.cell.http.remuda.cell_state import describe_settings
from remuda.cell.settings import CellSettings


def test_sources_and_secrets() -> None:
    settings = CellSettings(
        data=Path("/data"),
        database="postgresql://remuda:pass@word@db/remuda?password=hunter2",
        admin_token="glpat-very-secret",
        registration_token="GR-very-secret",
        encryption_keys=("very-secret",),
        lease_seconds=7,
    )
    sources = {"data": "option", "lease_seconds": "REMUDA_LEASE_SECONDS"}
    shapes = {shape.name: shape for shape in describe_settings(settings, sources)}
    assert (shapes["lease_seconds"].value, shapes["lease_seconds"].default) == (7, 60)
    assert shapes["lease_seconds"].source == "REMUDA_LEASE_SECONDS"
    assert (shapes["data"].value, shapes["data"].source) == ("/data", "option")
    assert (shapes["silent_seconds"].source, shapes["database"].source) == ("default", "start")
    assert shapes["database"].value == "postgresql://remuda:***@db/remuda"
    assert shapes["web.enabled"].value is True
    assert shapes["job_tokens"].value == "signed"
    assert {shape.name for shape in shapes.values() if shape.hidden} == {
        "admin_token",
        "registration_token",
        "encryption_keys",
        "web.oidc.client_secret",
    }
    assert not any("secret" in str(shape.value) or "hunter2" in str(shape.value) for shape in shapes.values())
