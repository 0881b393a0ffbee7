"""The same federated round in other frameworks, each in a process, and where needed an environment, of its own."""
