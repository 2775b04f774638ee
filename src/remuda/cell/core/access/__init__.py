"""Access control: rights of users, tokens, job token scopes, rate limits."""
