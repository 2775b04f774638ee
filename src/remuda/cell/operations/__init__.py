"""What operators need: backup, retention, upkeep, audit log, integrity checks, the data folder."""
