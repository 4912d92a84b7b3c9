"""From traces and fleets to answers: the Spark pipeline, reports, advice, the player and experiments."""
