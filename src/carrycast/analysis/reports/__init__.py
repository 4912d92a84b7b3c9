"""Reports: figures, tables and a self-contained HTML page."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.reports.css import CSS as CSS
    from carrycast.analysis.reports.figures import draw_figure as draw_figure
    from carrycast.analysis.reports.page import (
        ReportSection as ReportSection,
        Summary as Summary,
        block_html as block_html,
        html_page as html_page,
        report_page as report_page,
    )
    from carrycast.analysis.reports.plots import (
        PaperFigure as PaperFigure,
        plot_comparison as plot_comparison,
        plot_degree as plot_degree,
        plot_delivery_over_time as plot_delivery_over_time,
        plot_lines as plot_lines,
    )
    from carrycast.analysis.reports.style import (
        COLORS as COLORS,
        DASHES as DASHES,
        RESOLUTION_DPI as RESOLUTION_DPI,
        group_digits as group_digits,
        metric_label as metric_label,
        metric_scale as metric_scale,
        paper_style as paper_style,
    )
    from carrycast.analysis.reports.tables import (
        csv_text as csv_text,
        distinct_texts as distinct_texts,
        interval_texts as interval_texts,
        latex_table as latex_table,
        mean_text as mean_text,
        number_text as number_text,
    )

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "css": "CSS",
        "figures": "draw_figure",
        "page": "ReportSection Summary block_html html_page report_page",
        "plots": "PaperFigure plot_comparison plot_degree plot_delivery_over_time plot_lines",
        "style": "COLORS DASHES RESOLUTION_DPI group_digits metric_label metric_scale paper_style",
        "tables": "csv_text distinct_texts interval_texts latex_table mean_text number_text",
    },
)
