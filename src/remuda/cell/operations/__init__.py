"""Operators' tasks: backup and restore, removal of old data, periodic maintenance, audit log, integrity checks, keys,
and the data folder.
"""
