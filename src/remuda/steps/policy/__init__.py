"""Step policy: which steps may run, which must, and within which limits.

`rules` decides (pure), over what `document` has read; `host` finds out once what this machine can hold steps to;
`enclosure` does that for one step, with `cgroups`, `people`, `measuring`, and `entering`, which runs `proxy` beside it.
The engine asks `rules` after every resolution and starts every process through an enclosure.
"""
