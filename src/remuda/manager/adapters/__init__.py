"""Kinds of environments; each fulfils `remuda.manager.ports.Environment` and passes its contract suite."""
