"""A client of a cell's Git LFS server, which sends single requests."""

import base64
import hashlib
from typing import Any

from tests.support.cells.served_cell import Answer, ServedCell

MEDIA = "application/vnd.git-lfs+json"


def basic(password: str, user: str = "oauth2") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Lfs:
    """A client of the LFS server of one project."""

    def __init__(self, cell: ServedCell, path: str, authorization: str) -> None:
        self.cell, self.path, self.authorization = cell, path, authorization

    def send(self, method: str, rest: str, body: Any = None, **headers: str) -> Answer:
        sent = {"Authorization": self.authorization, **headers}
        return self.cell.send(method, f"/{self.path}.git/{rest}", body, **sent)

    def batch(self, operation: str, *objects: tuple[str, int], **fields: Any) -> Answer:
        listed = [{"oid": oid, "size": size} for oid, size in objects]
        body = {"operation": operation, "transfers": ["basic"], "objects": listed, **fields}
        return self.send("POST", "info/lfs/objects/batch", body, Accept=MEDIA, Content_Type=MEDIA)

    def put(self, content: bytes, oid: str = "", size: int | None = None) -> Answer:
        oid = oid or hashlib.sha256(content).hexdigest()
        return self.send("PUT", f"gitlab-lfs/objects/{oid}/{len(content) if size is None else size}", content)

    def get(self, oid: str, **headers: str) -> Answer:
        return self.send("GET", f"gitlab-lfs/objects/{oid}", **headers)
