"""The trace: the facts of a run, in the same tables in every environment."""

from typing import TYPE_CHECKING

from carrycast.exports import lazy_exports

if TYPE_CHECKING:
    from carrycast.trace.diff import Difference as Difference, diff_traces as diff_traces
    from carrycast.trace.eligibility import Eligibility as Eligibility, find_eligible_pairs as find_eligible_pairs
    from carrycast.trace.facts import (
        CrashFact as CrashFact,
        DeliverFact as DeliverFact,
        DropFact as DropFact,
        EvictFact as EvictFact,
        FrameFact as FrameFact,
        LinkDownFact as LinkDownFact,
        LinkUpFact as LinkUpFact,
        NoteFact as NoteFact,
        PublishFact as PublishFact,
        Record as Record,
        StartFact as StartFact,
        StopFact as StopFact,
        StoreFact as StoreFact,
        SubscribeFact as SubscribeFact,
        TraceFact as TraceFact,
        UnsubscribeFact as UnsubscribeFact,
        event_id as event_id,
        facts_of_rows as facts_of_rows,
    )
    from carrycast.trace.files import (
        TABLES as TABLES,
        check_part as check_part,
        check_trace as check_trace,
        find_traces as find_traces,
        read_part as read_part,
        read_rows as read_rows,
        read_trace as read_trace,
        trace_level as trace_level,
    )
    from carrycast.trace.folds.batch import (
        COLUMNS as COLUMNS,
        TEXTS as TEXTS,
        RunTables as RunTables,
        TraceBatch as TraceBatch,
        code_of as code_of,
    )
    from carrycast.trace.folds.buffers import BufferFold as BufferFold
    from carrycast.trace.folds.delivery import (
        Audience as Audience,
        DeliveryFold as DeliveryFold,
        delivery_pairs as delivery_pairs,
    )
    from carrycast.trace.folds.drops import DropFold as DropFold, drop_reason as drop_reason
    from carrycast.trace.folds.duplicates import DuplicateFold as DuplicateFold
    from carrycast.trace.folds.flows import FLOW_FILTER as FLOW_FILTER, FlowFold as FlowFold
    from carrycast.trace.folds.fold import (
        Fold as Fold,
        MergeableFold as MergeableFold,
        MetricInfo as MetricInfo,
        Metrics as Metrics,
        OrderedFold as OrderedFold,
        SumFold as SumFold,
        fold_facts as fold_facts,
        quantile as quantile,
    )
    from carrycast.trace.folds.partials import EventPartials as EventPartials, Partials as Partials
    from carrycast.trace.folds.registry import (
        BUILT_IN as BUILT_IN,
        METRICS as METRICS,
        installed_folds as installed_folds,
        more_folds as more_folds,
        more_metrics as more_metrics,
        usual_metrics as usual_metrics,
    )
    from carrycast.trace.folds.traffic import (
        BROADCAST_US as BROADCAST_US,
        BYTE_US as BYTE_US,
        OVERHEAD_BYTES as OVERHEAD_BYTES,
        RATE_MBPS as RATE_MBPS,
        UNICAST_US as UNICAST_US,
        TrafficFold as TrafficFold,
    )
    from carrycast.trace.one_metrics import ONE_METRICS as ONE_METRICS, one_metric as one_metric
    from carrycast.trace.rows import (
        Transfer as Transfer,
        answer_row as answer_row,
        close_row as close_row,
        delivery_row as delivery_row,
        drop_row as drop_row,
        encode_event as encode_event,
        event_size_bytes as event_size_bytes,
        fact_row as fact_row,
        lifecycle_row as lifecycle_row,
        link_change_row as link_change_row,
        link_row as link_row,
        processor_error as processor_error,
        publication_row as publication_row,
        refusal_row as refusal_row,
        request_row as request_row,
        subscription_row as subscription_row,
        unsubscription_row as unsubscription_row,
    )
    from carrycast.trace.schema import (
        COLUMN_MEANINGS as COLUMN_MEANINGS,
        EVENT_COLUMNS as EVENT_COLUMNS,
        KIND_MEANINGS as KIND_MEANINGS,
        SUBSCRIPTION_COLUMNS as SUBSCRIPTION_COLUMNS,
        TRACE_COLUMNS as TRACE_COLUMNS,
        Kind as Kind,
        Level as Level,
        Row as Row,
        arrow_schema as arrow_schema,
    )
    from carrycast.trace.writer import PART_ROWS as PART_ROWS, Trace as Trace, save_tables as save_tables

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "diff": "Difference diff_traces",
        "eligibility": "Eligibility find_eligible_pairs",
        "facts": "CrashFact DeliverFact DropFact EvictFact FrameFact LinkDownFact LinkUpFact NoteFact "
        "PublishFact Record StartFact StopFact StoreFact SubscribeFact TraceFact UnsubscribeFact "
        "event_id facts_of_rows",
        "files": "TABLES check_part check_trace find_traces read_part read_rows read_trace trace_level",
        "folds.batch": "COLUMNS RunTables TEXTS TraceBatch code_of",
        "folds.buffers": "BufferFold",
        "folds.delivery": "Audience DeliveryFold delivery_pairs",
        "folds.drops": "DropFold drop_reason",
        "folds.duplicates": "DuplicateFold",
        "folds.flows": "FLOW_FILTER FlowFold",
        "folds.fold": "Fold MergeableFold MetricInfo Metrics OrderedFold SumFold fold_facts quantile",
        "folds.partials": "EventPartials Partials",
        "folds.registry": "BUILT_IN METRICS installed_folds more_folds more_metrics usual_metrics",
        "folds.traffic": "BROADCAST_US BYTE_US OVERHEAD_BYTES RATE_MBPS TrafficFold UNICAST_US",
        "one_metrics": "ONE_METRICS one_metric",
        "rows": "Transfer answer_row close_row delivery_row drop_row encode_event event_size_bytes fact_row "
        "lifecycle_row link_change_row link_row processor_error publication_row refusal_row "
        "request_row subscription_row unsubscription_row",
        "schema": "COLUMN_MEANINGS EVENT_COLUMNS KIND_MEANINGS Kind Level Row SUBSCRIPTION_COLUMNS "
        "TRACE_COLUMNS arrow_schema",
        "writer": "PART_ROWS Trace save_tables",
    },
)
