"""Operators' tasks and maintenance: backup, restore, removal of old data, audit log, checks, keys, data folder."""
