"""Signing in to the web pages: by a token, by a link that works once, and out again."""
