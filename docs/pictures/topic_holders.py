"""Draws the maps of docs/results-topic-holders.md, with the topics: `python docs/pictures/topic_holders.py`."""

import io
from pathlib import Path

from PIL import Image

from carrycast.analysis.reports.figures import draw_figure
from carrycast.analysis.spark.experiment import load_experiment
from carrycast.analysis.spark.results import Results

HERE = Path(__file__).parent


def main() -> None:
    """The figure `maps` of both experiments, which needs no runs."""
    for name in ("topic-holders", "topic-holders-sensitivity"):
        experiment = load_experiment(f"{name}/maps")
        drawn = draw_figure(experiment.definition.figures[0], Results(experiment, [], HERE))
        assert drawn is not None
        # A page needs half of what a journal does, and the few colors of a drawing.
        picture = Image.open(io.BytesIO(drawn.png)).convert("RGB")
        small = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.LANCZOS)
        small.quantize(64).save(HERE / f"maps-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
