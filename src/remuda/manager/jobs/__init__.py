"""One job in the manager, from its hand-out to its end: journal, links to agents, recovery, shells."""
