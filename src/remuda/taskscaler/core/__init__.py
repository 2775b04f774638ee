"""Decides about the instances and slots of a fleet. Pure: callers pass the time and the state of the fleet.

`plan` decides about instances, in the steps `census`, `shrink` and `growth`; `slots` decides about slots. The other
modules compute their input or write a plan as text. A plan is the difference between wanted and existing instances, so
a new plan can be made at any time.
"""
