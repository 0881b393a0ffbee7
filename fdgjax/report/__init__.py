"""A page, tables and figures of runs, made from their folders; `fdgjax report`."""
