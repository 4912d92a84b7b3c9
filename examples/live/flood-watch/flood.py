"""The modulator of flood watch: the runoff model that the experiment `overlay` runs in the simulator."""

from carrycast.analysis.experiments.overlay.flood import flood

__all__ = ["flood"]
