"""What all endpoints share: the application, connections, authentication, bodies, errors, paging, limits."""
