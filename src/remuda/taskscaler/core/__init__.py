"""Decisions of the scaler. Pure: callers pass the time and all that is known.

`plan` decides about instances, `slots` about slots. `periods` and `policy` say which policy applies at a time, `boot`
and `share` compute the numbers that a plan starts from, `explain` writes a plan as text. A plan is the difference
between what is wanted and what exists, so the loop can ask for one at any time.
"""
