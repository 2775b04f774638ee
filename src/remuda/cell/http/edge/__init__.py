"""Parts that all endpoints share: application, connections, authentication, bodies, errors, paging, limits."""
