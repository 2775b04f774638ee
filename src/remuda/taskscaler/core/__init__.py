"""Decides about the instances and slots of a fleet. Pure: callers pass the time and the state of the fleet.

`plan` decides about instances, `slots` about slots. `periods` and `policy` say which policy applies at a time, `boot`
and `share` compute the numbers that a plan starts from, `explain` writes a plan as text. A plan is the difference
between the instances that are wanted and those that exist, so a new one can be made at any time.
"""
