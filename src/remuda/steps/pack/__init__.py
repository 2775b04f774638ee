"""Packs the agent into one file, and tells in which form (installed, zip, frozen) this program runs."""
