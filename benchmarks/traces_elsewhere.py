"""The metrics of traces in DuckDB and in Polars, as one would write them there: the yardsticks of `benchmarks.traces`.

Who is to get what is written out for the filters of W2 and W3, `w = NUMBER`; processors, which these runs have none
of, are left out. All else is what docs/metrics.md says.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.records import METRICS
from carrycast.trace.folds.traffic import BROADCAST_US, OVERHEAD_BYTES, UNICAST_US

if TYPE_CHECKING:
    import polars as pl

Found = dict[str, dict[str, object]]
TABLES = ("trace", "events", "subscriptions")

QUESTION = f"""
with frames as (
  select run,
    count(*) filter (kind in ('send', 'retry') and class <> 'discovery') as transmissions,
    count(*) filter (kind in ('send', 'retry') and class = 'control') as control_transmissions,
    count(*) filter (kind = 'receive' and class <> 'discovery') as receptions,
    coalesce(sum(size_bytes) filter (kind in ('send', 'retry') and class = 'data'), 0)::bigint as data_bytes,
    coalesce(sum(size_bytes) filter (kind in ('send', 'retry') and class = 'control'), 0)::bigint as control_bytes,
    coalesce(sum(size_bytes) filter (kind in ('send', 'retry') and class = 'discovery'), 0)::bigint as discovery_bytes,
    coalesce(sum(size_bytes) filter (kind in ('send', 'retry')), 0)::bigint as total_bytes,
    coalesce(sum(case when peer is not null then ((size_bytes + {OVERHEAD_BYTES}) * 8 + 10) // 11 + {UNICAST_US}
                      else size_bytes * 8 + {BROADCAST_US} end) filter (kind in ('send', 'retry')), 0)::bigint
      as airtime_us
  from trace group by run),
met as (
  select run, event, node, count(*) filter (kind = 'send') as sent, count(*) filter (kind = 'receive') as received
  from trace where kind in ('send', 'receive') and event is not null group by run, event, node),
copies as (
  select run, sum(case when counted then sent else 0 end)::bigint as forwards,
    (sum(received) - count(*) filter (received > 0 and node <> source))::bigint as duplicates
  from met join events using (run, event) group by run),
pairs as (
  select distinct e.run, e.event, s.node, e.time_s
  from events e join subscriptions s on e.run = s.run and s.from_s <= e.time_s and (s.to_s is null or e.time_s < s.to_s)
  where e.counted and s.node <> e.source
    and (e.attributes ->> '$.w') = regexp_extract(s.filter, '([0-9]+)$', 1)),
eligible as (select run, count(*) as eligible from pairs group by run),
deliveries as (
  select run, event, node, min_by(hops, (time_s, filename, file_row_number)) as hops, min(time_s) as first_s
  from trace where kind = 'deliver' group by run, event, node),
served as (
  select run, round(first_s - pairs.time_s, 6) as delay_s, hops from pairs join deliveries using (run, event, node)),
delivered as (
  select run, count(*) as delivered, fsum(delay_s) / count(*) as delay_mean_s,
    quantile_cont(delay_s, 0.5) as delay_p50_s, quantile_cont(delay_s, 0.95) as delay_p95_s, avg(hops) as hops_mean
  from served group by run),
changes as (
  select run, node, time_s, filename, file_row_number,
    case kind when 'store' then 1 when 'evict' then -1 else 0 end as change, kind in ('crash', 'start') as anew
  from trace where (kind in ('store', 'evict') and event is not null) or kind in ('crash', 'start')),
sums as (
  select *, sum(change) over lives as held from changes
  window lives as (partition by run, node order by time_s, filename, file_row_number)),
stored as (
  select run, held - coalesce(last_value(case when anew then held end ignore nulls) over lives, 0) as held from sums
  window lives as (partition by run, node order by time_s, filename, file_row_number)),
buffers as (select run, greatest(max(held), 0)::bigint as buffer_peak from stored group by run),
published as (select run, count(*) as published from events where counted group by run)
select run, published, coalesce(eligible, 0) as eligible, coalesce(delivered, 0) as delivered,
  delivered / eligible as delivery_ratio, * exclude (run, published, eligible, delivered)
from frames left join published using (run) left join eligible using (run) left join delivered using (run)
  left join copies using (run) left join buffers using (run)
"""


def _files(folders: list[Path], table: str) -> list[str]:
    return [str(path) for folder in folders for path in sorted((folder / table).glob("*.parquet"))]


def in_duckdb(folders: list[Path]) -> Found:
    """All in SQL."""
    import duckdb

    base = duckdb.connect()
    for table in TABLES:
        base.execute(
            f"create view {table} as select * from "
            f"read_parquet({_files(folders, table)}, filename = true, file_row_number = true)"
        )
    answer = base.execute(QUESTION)
    assert answer.description is not None
    names = [column[0] for column in answer.description]
    rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    return {str(row["run"]): {metric: row[metric] for metric in METRICS} for row in rows}


def in_polars(folders: list[Path]) -> Found:
    """The same, lazily. Files are read in the order of a run's rows, so that a row's number tells equal times apart."""
    import polars as pl

    trace, events, subscriptions = (pl.scan_parquet(_files(folders, table)) for table in TABLES)
    kind = pl.col("kind")
    pairs = (
        events.filter("counted")
        .with_columns(w=pl.col("attributes").str.json_path_match("$.w"))
        .join(subscriptions.with_columns(w=pl.col("filter").str.extract("([0-9]+)$")), on=["run", "w"], suffix="_s")
        .filter(
            (pl.col("node") != pl.col("source"))
            & (pl.col("from_s") <= pl.col("time_s"))
            & (pl.col("to_s").is_null() | (pl.col("time_s") < pl.col("to_s")))
        )
        .select("run", "event", "node", published_s="time_s")
        .unique()
    )
    first = (
        trace.filter(kind == "deliver")
        .group_by("run", "event", "node")
        .agg(pl.col("time_s").min(), pl.col("hops").sort_by("time_s", maintain_order=True).first())
    )
    delay_s = (pl.col("time_s") - pl.col("published_s")).round(6)
    delivered = (
        pairs.join(first, on=["run", "event", "node"])
        .group_by("run")
        .agg(
            delivered=pl.len(),
            delay_mean_s=delay_s.mean(),
            delay_p50_s=delay_s.quantile(0.5, "linear"),
            delay_p95_s=delay_s.quantile(0.95, "linear"),
            hops_mean=pl.col("hops").mean(),
        )
    )
    found = [
        _frames(trace),
        events.filter("counted").group_by("run").agg(published=pl.len()),
        pairs.group_by("run").agg(eligible=pl.len()),
        delivered,
        _copies(trace, events),
        _buffers(trace),
    ]
    joined = found[0]
    for part in found[1:]:
        joined = joined.join(part, on="run", how="left")
    counts = [metric for metric in METRICS if not metric.endswith(("_s", "_mean", "_ratio"))]
    ratio = pl.col("delivered") / pl.col("eligible")
    rows = joined.with_columns(pl.col(counts).fill_null(0)).with_columns(delivery_ratio=ratio).collect().to_dicts()
    return {row["run"]: {metric: row[metric] for metric in METRICS} for row in rows}


def _frames(trace: "pl.LazyFrame") -> "pl.LazyFrame":
    import polars as pl

    kind, traffic, sized = pl.col("kind"), pl.col("class"), pl.col("size_bytes")
    sent, work = kind.is_in(["send", "retry"]), traffic != "discovery"
    unicast_us = ((sized + OVERHEAD_BYTES) * 8 + 10) // 11 + UNICAST_US
    air_us = pl.when(pl.col("peer").is_not_null()).then(unicast_us).otherwise(sized * 8 + BROADCAST_US)
    return trace.group_by("run").agg(
        (sent & work).sum().alias("transmissions"),
        (sent & (traffic == "control")).sum().alias("control_transmissions"),
        ((kind == "receive") & work).sum().alias("receptions"),
        *(
            sized.filter(sent & (traffic == name)).sum().alias(f"{name}_bytes")
            for name in ("data", "control", "discovery")
        ),
        sized.filter(sent).sum().alias("total_bytes"),
        air_us.filter(sent).sum().alias("airtime_us"),
    )


def _copies(trace: "pl.LazyFrame", events: "pl.LazyFrame") -> "pl.LazyFrame":
    import polars as pl

    kind, received = pl.col("kind"), pl.col("received")
    return (
        trace.filter(kind.is_in(["send", "receive"]) & pl.col("event").is_not_null())
        .group_by("run", "event", "node")
        .agg(sent=(kind == "send").sum(), received=(kind == "receive").sum())
        .join(events.select("run", "event", "source", "counted"), on=["run", "event"])
        .group_by("run")
        .agg(
            forwards=pl.col("sent").filter("counted").sum(),
            duplicates=received.sum() - ((received > 0) & (pl.col("node") != pl.col("source"))).sum(),
        )
    )


def _buffers(trace: "pl.LazyFrame") -> "pl.LazyFrame":
    import polars as pl

    kind = pl.col("kind")
    change = pl.when(kind == "store").then(1).when(kind == "evict").then(-1).otherwise(0)
    anew = kind.is_in(["crash", "start"])
    held = pl.col("change").cum_sum()
    return (
        trace.filter((kind.is_in(["store", "evict"]) & pl.col("event").is_not_null()) | anew)
        .select("run", "node", "time_s", anew=anew, change=change)
        .sort("run", "node", "time_s", maintain_order=True)
        .with_columns(held=held.over("run", "node"))
        .with_columns(before=pl.when("anew").then("held").forward_fill().over("run", "node"))
        .group_by("run")
        .agg(buffer_peak=(pl.col("held") - pl.col("before").fill_null(0)).max().clip(lower_bound=0))
    )
