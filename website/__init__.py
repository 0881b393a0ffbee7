"""The documentation's site: what `mkdocs.yml` asks of Python. `make docs` builds it; nothing here imports JAX."""
