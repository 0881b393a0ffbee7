"""A page, tables and figures made of the folders that runs leave; `python -m fdgjax.report`."""
