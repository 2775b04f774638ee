"""What a scaler knows of one fleet, in memory: instances, slots, groups, requests. Pure; `loop` feeds and stores it."""
