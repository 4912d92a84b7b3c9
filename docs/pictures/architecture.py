"""Draws the pictures of docs/architecture.md: `python docs/pictures/architecture.py` writes architecture.svg and
data-paths.svg beside this file."""

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FONT = "font-family='Inter, Helvetica Neue, Arial, sans-serif'"
INK, LINE, PALE, ACCENT = "#1c2733", "#8a99a8", "#eef3f7", "#d7e6f2"

# From the top: each row may import from the rows below it. A package, what is in it, its color.
ROWS = (
    (("cli", "arguments in, text out", PALE), ("carrycast (api)", "the public Python API", PALE)),
    (
        (
            "analysis",
            "spark · fleets · advice · evidence · reports · explain · player · live_page · telemetry · experiments",
            ACCENT,
        ),
    ),
    (("lab", "a scenario played to live nodes: emulation", PALE),),
    (
        ("sim", "scenario · mobility · contacts · radio · engine · testing", ACCENT),
        ("node", "security · link · storage · runtime · api · gateways", ACCENT),
    ),
    (
        ("trace", "facts · rows · files · folds", PALE),
        ("protocols", "one folder per protocol", PALE),
        ("routers", "one folder per router", PALE),
        ("services", "policy · retrieval", PALE),
    ),
    (("core", "model ← matching, wire ← protocol ← parts; plugins, settings, streams, stacks, maps", ACCENT),),
)

PATHS = {
    "simulated event": (
        ("SimNode.publish", "sim/engine/node.py"),
        ("Stack.on_publish", "core/protocol/stack.py"),
        ("the protocol's handler", "protocols/*"),
        ("SimPort → Interfaces", "sim/engine/interfaces.py"),
        ("the radio's medium", "sim/radio"),
        ("Network: who hears it", "sim/engine/network.py"),
        ("Stack.on_message", "each receiver"),
        ("Recorder: facts", "sim/engine/observers"),
    ),
    "live event, open": (
        ("LiveNode.publish", "node/node.py"),
        ("EventPublisher", "node/runtime/publisher.py"),
        ("Runtime: handler, effects", "node/runtime/runtime.py"),
        ("GroupCommit", "node/storage/group_commit.py"),
        ("LiveInterface", "node/link/interface.py"),
        ("LinkLayer: ack, retry", "node/link/link_layer.py"),
        ("PlainChannel", "node/link/channel.py"),
        ("LinkAdapter (UDP, ...)", "node/link/udp.py"),
    ),
    "live event, sealed": (
        ("LiveNode.publish", "node/node.py"),
        ("EventPublisher: signs", "node/security/event_signatures.py"),
        ("Runtime: handler, effects", "node/runtime/runtime.py"),
        ("GroupCommit", "node/storage/group_commit.py"),
        ("LiveInterface", "node/link/interface.py"),
        ("LinkLayer: ack, retry", "node/link/link_layer.py"),
        ("sealed channel", "node/security/sealed.py"),
        ("LinkAdapter (UDP, ...)", "node/link/udp.py"),
    ),
    "sweep row": (
        ("Experiment", "analysis/spark/experiment.py"),
        ("plan of runs", "analysis/spark/plan.py"),
        ("Spark task, or process", "analysis/spark/sweep.py"),
        ("run()", "sim/engine/simulation.py"),
        ("folds: metrics", "trace/folds"),
        ("TaskJournal", "analysis/spark/journal.py"),
        ("runs.parquet", "analysis/spark/records.py"),
        ("means, claims, report", "analysis/reports"),
    ),
    "fleet point": (
        ("a file's row", "GPS log, GPX, GeoJSON, ..."),
        ("FileFormat: raw rows", "analysis/fleets/formats.py"),
        ("partition by node", "analysis/fleets/partitions.py"),
        ("cleaning: a reason", "analysis/fleets/cleaning.py"),
        ("positions, legs", "analysis/fleets/tables.py"),
        ("exact contacts", "analysis/fleets/contacts.py"),
        ("FleetMovement", "sim/mobility/fleet.py"),
        ("a simulated run", "sim/engine/simulation.py"),
    ),
    "trace row": (
        ("something happens", "simulator or live node"),
        ("a typed fact", "trace/facts.py"),
        ("a row", "trace/rows.py"),
        ("Parquet, with a version", "trace/writer.py"),
        ("find, check, read", "trace/files.py"),
        ("folds, in process", "trace/folds"),
        ("folds, on Spark", "analysis/spark/trace_metrics.py"),
        ("metrics, explain, player", "analysis"),
    ),
    "MQTT publish": (
        ("bytes of a client", "TCP or TLS"),
        ("codec, packets", "node/gateways/mqtt"),
        ("packet handler", "node/gateways/mqtt"),
        ("rights, event", "node/gateways/mqtt/events.py"),
        ("NodeInterface.publish", "node/api/node_interface.py"),
        ("a live event", "as above"),
        ("GroupCommit: stored", "node/storage/group_commit.py"),
        ("PUBACK, PUBREC", "node/gateways/mqtt"),
    ),
}


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8' fill='{fill}' stroke='{LINE}'/>"


def text(x: float, y: float, content: str, size: float, weight: int = 400, fill: str = INK) -> str:
    return (
        f"<text x='{x}' y='{y}' {FONT} font-size='{size}' font-weight='{weight}' fill='{fill}' "
        f"text-anchor='middle'>{escape(content)}</text>"
    )


def svg(width: float, height: float, parts: list[str]) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
    marker = (
        f"<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' orient='auto'>"
        f"<path d='M0 0L8 4L0 8z' fill='{LINE}'/></marker></defs><rect width='100%' height='100%' fill='#fff'/>"
    )
    return "\n".join([head, marker, *parts, "</svg>", ""])


def packages() -> str:
    """The packages; imports point down."""
    width, row_height, gap, margin = 920.0, 62.0, 26.0, 20.0
    parts = []
    for place, row in enumerate(ROWS):
        y = margin + place * (row_height + gap)
        each = (width - 2 * margin - (len(row) - 1) * 14.0) / len(row)
        for number, (name, content, fill) in enumerate(row):
            x = margin + number * (each + 14.0)
            parts += [box(x, y, each, row_height, fill), text(x + each / 2, y + 26, name, 16, 600)]
            parts.append(text(x + each / 2, y + 46, content, 12))
        if place + 1 < len(ROWS):
            middle = width / 2
            parts.append(
                f"<line x1='{middle}' y1='{y + row_height + 3}' x2='{middle}' y2='{y + row_height + gap - 3}' "
                f"stroke='{LINE}' stroke-width='1.5' marker-end='url(#tip)'/>"
            )
    return svg(width, 2 * margin + len(ROWS) * row_height + (len(ROWS) - 1) * gap, parts)


def data_paths() -> str:
    """Each path from left to right, hop by hop, with the module of each hop."""
    label, step, height, gap = 120.0, 192.0, 48.0, 20.0
    longest = max(map(len, PATHS.values()))
    parts = []
    for place, (name, hops) in enumerate(PATHS.items()):
        y = 16 + place * (height + gap)
        parts.append(text(label / 2 + 6, y + height / 2 + 4, name, 12, 600))
        for number, (what, where) in enumerate(hops):
            x = label + 14 + number * step
            parts += [box(x, y, step - 16, height, PALE if number % 2 else ACCENT)]
            parts += [text(x + (step - 16) / 2, y + 20, what, 12, 600)]
            parts += [text(x + (step - 16) / 2, y + 37, where, 9.5, fill="#4a5866")]
            if number + 1 < len(hops):
                at = x + step - 16
                parts.append(
                    f"<line x1='{at + 1}' y1='{y + height / 2}' x2='{at + 15}' y2='{y + height / 2}' "
                    f"stroke='{LINE}' stroke-width='1.5' marker-end='url(#tip)'/>"
                )
    return svg(label + 14 + longest * step, 32 + len(PATHS) * (height + gap) - gap, parts)


if __name__ == "__main__":
    (HERE / "architecture.svg").write_text(packages())
    (HERE / "data-paths.svg").write_text(data_paths())
