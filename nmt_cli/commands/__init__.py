"""One file per command: parse, call the library, display. Torch loads only when one runs."""
