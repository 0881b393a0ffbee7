"""A page, tables and figures of runs, made from their folders; `python -m fdgjax.report`."""
