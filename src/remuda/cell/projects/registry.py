"""Issues tokens for a Docker registry that runs beside the cell, according to the rights of the job or user that asks.

Tokens are signed with the key in the file that the settings name, or with a key that the cell creates in its store.

Invariant: a token allows only what the job or user may do at the moment when it is issued, and expires after some
minutes."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from remuda.cell.core.access import registry_images
from remuda.cell.errors import CellError, ConflictError
from remuda.cell.secrets.key_ring import REGISTRY_KEY_PREFIX
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Project
from remuda.lib.clock import Clock
from remuda.wire.registry_token import RegistryKey, load_registry_key, new_registry_key, sign_registry_token

_KEY = f"{REGISTRY_KEY_PREFIX}1"

Allows = Callable[[Project], Collection[str]]
"""Returns the actions that the caller may do with the images of a project."""


class Registry:
    def __init__(self, store: Store, clock: Clock, settings: CellSettings, key: RegistryKey) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self.key = key

    @classmethod
    async def open(cls, store: Store, clock: Clock, settings: CellSettings) -> "Registry":
        """Load the key for registry tokens, or create the first one. Raises CellError if its file cannot be used."""
        if settings.registry_key is not None:
            return cls(store, clock, settings, _load_key(settings.registry_key))
        while (pem := (await store.settings.load_signing_keys()).get(_KEY)) is None:
            with suppress(ConflictError):  # another process of the cell has created it
                await store.settings.add_signing_key(_KEY, new_registry_key(settings.cell_id, clock.now()).pem())
        return cls(store, clock, settings, load_registry_key(pem))

    async def token(self, scopes: Iterable[str], allows: Allows, *, subject: str) -> str:
        """Return a signed registry token for `subject` (job or user), for the part of the requested `scopes` (images
        and actions) that `allows` permits: it returns the permitted actions in a project."""
        access = []
        for scope in registry_images.parse_scopes(scopes):
            project = await self._project(scope.name)
            if project is not None and (grant := registry_images.limit_access(scope, allows(project))):
                access.append(grant)
        return sign_registry_token(
            access,
            self.key,
            issuer=self._settings.url,
            service=self._settings.registry_service,
            subject=subject,
            now=self._clock.wall(),
        )

    async def _project(self, image: str) -> Project | None:
        for path in registry_images.project_paths(image):
            project = await self._store.projects.find_project(path)
            if project is not None and project.removed_at is None:
                return project
        return None


def _load_key(path: Path) -> RegistryKey:
    try:
        return load_registry_key(path.read_bytes())
    except OSError as error:
        raise CellError(f"registry key {path}: {error.strerror}; give a file that the cell can read") from None
    except (ValueError, TypeError) as error:
        raise CellError(
            f"registry key {path}: {error}; give a PEM file with a private key without a passphrase and its certificate"
        ) from None
