"""Decides which instances a fleet creates and removes, and which slot (room for one job on an instance) a job gets.
Pure: callers pass the time and the state of the fleet.

`plan` decides about instances, in the steps `census`, `shrink`, `growth`; `slots` about slots. Other modules compute
their input or write a plan as text. A plan is the difference of wanted and existing instances: it can be made anew any
time."""
