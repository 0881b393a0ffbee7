"""One run: compilation, training, resuming, records, console, reopening; and several runs as one program."""
