"""Messages between processes: Runner API messages, tokens, protos, and their clients. Codecs convert them to model
values."""
