"""The player: a run as one HTML file that moves. Python says what happened; the page's own scripts draw it."""

from carrycast.analysis.player.show import player_of_scenario, player_of_trace

__all__ = ["player_of_scenario", "player_of_trace"]
