"""Autoscaling: decides how many instances (machines) a fleet has, which of them are removed, and which slot a job gets.
A fleet is all instances of one configured runner; a slot is room for one job on an instance.

`core` decides (`core.plan` about instances, `core.slots` about slots), `fleet` holds the state of a fleet, and `loop`
carries plans out for the runner manager. `core` and `fleet` are pure: no I/O, no clock, no randomness."""
