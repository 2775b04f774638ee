"""Operators' tasks and periodic maintenance: backup, restore, old data, audit log, integrity checks, keys, data
folder."""
