"""Autoscaling: decides how many instances a fleet has, which of them are removed, and which slot a job gets.

`core` decides (`core.plan` about instances, `core.slots` about slots), `fleet` holds the state of a fleet, and `loop`
carries plans out for the runner manager. `core` and `fleet` are pure: no I/O, no clock, no randomness.
"""
