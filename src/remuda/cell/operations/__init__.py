"""Operators' tasks: backup, restore, removal of old data, upkeep, audit log, integrity checks, keys, data folder."""
