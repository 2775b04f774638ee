"""What crosses a process: Runner API messages, tokens, protos, clients. Codecs turn wire forms into model values."""
