"""Messages between cell, runner manager, agent and clients: their formats, tokens, protobuf files, and API clients."""
