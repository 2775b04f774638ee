"""How many instances there should be, which of them go, and which slot a job gets. Pure: no I/O, no clock, no chance;
all but `loop`, which acts.

`plan` decides about instances, `slots` about slots; `periods` and `policy` say what holds at a time, `boot` and `share`
make the numbers that a plan starts from, `explain` puts a plan into words. `loop` acts on plans. It calls all of these
with the time and what is known, and calls them again: a plan is a difference between what is wanted and what is there.
"""
