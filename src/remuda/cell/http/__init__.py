"""HTTP of the cell: GitLab's API under /api/v4, Remuda's own under /api/remuda/v1, git, health and metrics.

`edge` has what all endpoints share; the other folders have the endpoints; each module lists its own in `routes`.
`edge.app` puts them together; docs/reference/generated/http.md lists them all.
"""
