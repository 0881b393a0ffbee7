"""The subcommands of `fdgjax`, one module each."""
