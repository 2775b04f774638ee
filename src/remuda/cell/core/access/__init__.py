"""Who may do what: rights, tokens, job token scopes, rate limits."""
