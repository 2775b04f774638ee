"""`remuda manager`: one module for a few related commands."""
