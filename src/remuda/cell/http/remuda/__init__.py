"""Endpoints that only Remuda has, under /api/remuda/v1."""
