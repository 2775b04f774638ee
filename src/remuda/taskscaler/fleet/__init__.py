"""State of one fleet in memory: instances, slots, groups, requests. Pure; `loop` updates and stores it."""
