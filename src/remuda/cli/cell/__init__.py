"""`remuda cell`: one module for a few related commands."""
