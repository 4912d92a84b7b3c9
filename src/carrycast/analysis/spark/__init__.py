"""Spark jobs over runs and traces: sweep, metrics, claims, contacts, report.

Spark is imported where a job starts, never here, so a machine without Spark can still import this package.
"""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.analysis.spark.claims import (
        UNDECIDED as UNDECIDED,
        Claim as Claim,
        ClaimCase as ClaimCase,
        decide as decide,
        make_claim as make_claim,
        make_claim_over_cases as make_claim_over_cases,
        relation_text as relation_text,
    )
    from carrycast.analysis.spark.cluster.executors import check_shared_paths as check_shared_paths
    from carrycast.analysis.spark.comparison import compare as compare, compared_metrics as compared_metrics
    from carrycast.analysis.spark.definition import (
        Axis as Axis,
        Definition as Definition,
        Figure as Figure,
        Label as Label,
        Relation as Relation,
        Selector as Selector,
        axis_labels as axis_labels,
        label_text as label_text,
    )
    from carrycast.analysis.spark.experiment import (
        Experiment as Experiment,
        Point as Point,
        experiment_names as experiment_names,
        load_experiment as load_experiment,
        vary_scenario as vary_scenario,
    )
    from carrycast.analysis.spark.output import lock_folder as lock_folder, write_atomically as write_atomically
    from carrycast.analysis.spark.own_metrics import (
        OwnMetric as OwnMetric,
        load_metrics as load_metrics,
        metric as metric,
    )
    from carrycast.analysis.spark.player_pages import make_player as make_player
    from carrycast.analysis.spark.progress_bar import progress as progress
    from carrycast.analysis.spark.records import (
        METRICS as METRICS,
        Record as Record,
        failure_lines as failure_lines,
        metric_bounds as metric_bounds,
        metric_value as metric_value,
        record_table as record_table,
        series_value as series_value,
    )
    from carrycast.analysis.spark.reproduction import (
        ExperimentReport as ExperimentReport,
        read_stored_experiments as read_stored_experiments,
        read_stored_warnings as read_stored_warnings,
        report as report,
        reproduce as reproduce,
        reproduce_experiments as reproduce_experiments,
        sweep_experiment as sweep_experiment,
    )
    from carrycast.analysis.spark.results import (
        Results as Results,
        common_pairs as common_pairs,
        served_share_over_time as served_share_over_time,
        time_grid as time_grid,
    )
    from carrycast.analysis.spark.spark_session import (
        LazySession as LazySession,
        check_reports_installed as check_reports_installed,
        check_spark_installed as check_spark_installed,
        configure as configure,
        parse_conf as parse_conf,
        session as session,
    )
    from carrycast.analysis.spark.statistics import (
        DIFFERENCE_OF_SHARES as DIFFERENCE_OF_SHARES,
        SHARE as SHARE,
        Bounds as Bounds,
        Interval as Interval,
        confidence_interval as confidence_interval,
        paired_differences as paired_differences,
        ratio_confidence_interval as ratio_confidence_interval,
    )
    from carrycast.analysis.spark.stopping import PointRuns as PointRuns, stop_sentence as stop_sentence
    from carrycast.analysis.spark.sweep import read_runs as read_runs, run_sweep as run_sweep
    from carrycast.analysis.spark.tour import (
        ExperimentTour as ExperimentTour,
        OpeningRun as OpeningRun,
        run_opening as run_opening,
        run_tour as run_tour,
    )
    from carrycast.analysis.spark.trace_metrics import (
        eligible_pairs as eligible_pairs,
        find_checked_traces as find_checked_traces,
        metrics_of_traces as metrics_of_traces,
    )
    from carrycast.analysis.spark.trace_tables import (
        ORDER as ORDER,
        read_parts as read_parts,
        read_tables as read_tables,
        spark_schema as spark_schema,
    )
    from carrycast.analysis.spark.verify import (
        VerifiedRun as VerifiedRun,
        sample_runs as sample_runs,
        verify_runs as verify_runs,
    )
    from carrycast.analysis.spark.views import fetch_rows as fetch_rows, run_query as run_query

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "claims": "Claim ClaimCase UNDECIDED decide make_claim make_claim_over_cases relation_text",
        "cluster.executors": "check_shared_paths",
        "comparison": "compare compared_metrics",
        "definition": "Axis Definition Figure Label Relation Selector axis_labels label_text",
        "experiment": "Experiment Point experiment_names load_experiment vary_scenario",
        "output": "lock_folder write_atomically",
        "own_metrics": "OwnMetric load_metrics metric",
        "progress_bar": "progress",
        "records": "METRICS Record failure_lines metric_bounds metric_value record_table series_value",
        "reproduction": "ExperimentReport read_stored_experiments read_stored_warnings report reproduce "
        "reproduce_experiments sweep_experiment",
        "results": "Results common_pairs served_share_over_time time_grid",
        "spark_session": "LazySession check_reports_installed check_spark_installed configure parse_conf session",
        "stopping": "PointRuns stop_sentence",
        "statistics": "Bounds DIFFERENCE_OF_SHARES Interval SHARE confidence_interval paired_differences "
        "ratio_confidence_interval",
        "sweep": "read_runs run_sweep",
        "tour": "ExperimentTour OpeningRun run_opening run_tour",
        "trace_metrics": "find_checked_traces eligible_pairs metrics_of_traces",
        "trace_tables": "ORDER read_parts read_tables spark_schema",
        "verify": "VerifiedRun sample_runs verify_runs",
        "views": "fetch_rows run_query",
        "player_pages": "make_player",
    },
)
