"""The dashboard: who holds what, is it even, what moved and why, in a browser. It asks brokers through `Admin` alone.

| file | what |
|---|---|
| `serving` | listening, and stopping |
| `app` | the web application: routes put together |
| `guard` | who may ask what: hosts, origins, sessions, roles; headers of every answer |
| `tokens`, `sessions` | signing in |
| `poller`, `subject`, `group_watch`, `topic_watch` | the one that asks brokers, for all pages together |
| `history` | what was seen, in an SQLite file of bounded size |
| `desk` | where every question is answered |
| `actions` | what people ask for: searching, resetting, replaying |
| `answers`, `wishes` | what the JSON API gives and takes |
| `api`, `openapi`, `pages`, `drawing` | the same things for programs and for people |
| `group_view`, `overview_view`, `verdicts`, `timeline`, `moves`, `what_if`, `charts`, `bodies` | PURE: from facts to what is shown |
| `simulate` | a simulation, in a process of its own |
"""
