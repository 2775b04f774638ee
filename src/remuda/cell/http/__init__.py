"""HTTP endpoints of the cell: GitLab's API under /api/v4, Remuda's own under /api/remuda/v1, git, health and metrics.

`edge` has the code that all endpoints share; each module in the other folders lists its endpoints in `routes`.
`edge.app` combines them; docs/reference/generated/http.md lists them all."""
