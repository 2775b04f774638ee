"""`remuda run`, and what `remuda up` and `remuda step run` share with it: a whole platform on this machine."""
