"""Operators' tasks: backup, restore, removal of old data, maintenance, audit log, integrity checks, keys, data folder."""
