"""Autoscaling: how many instances a fleet has, which of them go, and which slot a job gets.

`core` decides (`core.plan` about instances, `core.slots` about slots), `fleet` holds what is known of a fleet, and
`loop` acts on plans for the manager. `core` and `fleet` are pure: no I/O, no clock, no randomness.
"""
