"""How commands find their cell, its token and a project."""
