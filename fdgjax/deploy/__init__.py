"""Deployment of a registered method between real parties: a server, and clients whose samples stay with them.

Methods need no second implementation: a node runs `engine.round.client_round` and the server
`engine.round.server_round`, each on what it holds (`placement`). Messages travel by any `wire.Transport`: by Flower
(`flower`), or within one process, for tests.
"""
