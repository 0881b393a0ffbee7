"""Experiments between real parties: a server, and nodes whose samples stay with them.

Methods need no second implementation: a node runs `engine.round.client_round` and the server
`engine.round.server_round`, each on what it holds. Messages travel by any `wire.Transport`: by Flower, or within one
process, for tests.

- All parties: what they agree on (`terms`), the messages (`wire`), arrays by path (`leaves`), who holds which state
  (`placement`), secrets and accounts of privacy (`account`, `privacy`).
- A node: its samples (`own_samples`, `image_folder`), its part of a round (`node`), its counts (`evaluation`), its own
  settings (`node_settings`), what it does with a request (`request_handlers`), and what it keeps (`kept`).
- The server: its part of a round (`server`), what it sends (`requests`), all rounds (`rounds`) and their figures
  (`evaluated_rounds`), its folder (`folder`), the columns' statistics (`statistics`).
- Flower: the apps (`server_app`, `client_app`), messages as Flower's (`flower_transport`), a node with one process for
  all messages (`warm_node`, `worker`, `processes`, `waiting`), and what it asks the server first (`server_check`).
- Administrators: the app's folder (`app`), keys (`keys`), a page and services (`operations`, `contents`,
  `service_files`), the log of messages (`message_log`, `audit`).
"""
