"""What the claims of topic-holders depend on: maps, places of topics, K, routers, load, errors of positions."""
