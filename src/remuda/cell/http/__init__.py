"""The cell's edge: HTTP in GitLab's form under /api/v4, Remuda's own under /api/remuda/v1, git, health and metrics.

`app` routes, `auth` says who asks, `bodies` reads what they send, `errors` and `views` say how it looks to them. The
other modules hold the endpoints, each with its table `ENDPOINTS`; docs/reference/http.md lists them all.
"""
