"""What `remuda run` and `remuda up` are made of: a whole platform on this machine for one repository."""
