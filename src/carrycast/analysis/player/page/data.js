// The data from Python: a header, and columns of integers as compressed varints.
const header = JSON.parse(document.getElementById("header").textContent);
// Duration and area of a live network grow while it is watched.
let duration = header.duration_s;
const extent = { x: 0, y: 0, width: header.area_m?.[0] ?? 1000, height: header.area_m?.[1] ?? 1000 };

// Recorded movement may leave the area of the scenario.
function widen(xs, ys) {
  let [left, low, right, high] = [extent.x, extent.y, extent.x + extent.width, extent.y + extent.height];
  for (let i = 0; i < xs.length; i++) {
    if (xs[i] < left) left = xs[i];
    if (xs[i] > right) right = xs[i];
    if (ys[i] < low) low = ys[i];
    if (ys[i] > high) high = ys[i];
  }
  Object.assign(extent, { x: left, y: low, width: right - left, height: high - low });
}

// The map shows the start and the end of every leg. Without an area they determine the frame, with a margin.
function frameMovement(x, y, start, end, vx, vy) {
  const [toX, toY] = [[x, vx], [y, vy]].map(([from, speed]) => from.map((at, leg) => at + speed[leg] * (end[leg] - start[leg])));
  if (header.area_m) {
    widen(x, y);
    return widen(toX, toY);
  }
  if (!x.length) return;
  Object.assign(extent, { x: x[0], y: y[0], width: 0, height: 0 });
  widen(x, y);
  widen(toX, toY);
  for (const [, ...places] of header.roads) widen(places.filter((_, i) => i % 2 === 0), places.filter((_, i) => i % 2));
  addMargin(0.05);
}

function addMargin(share) {
  // A single node that never moves needs an extent, too.
  const edge = Math.max(extent.width, extent.height, 10) * share;
  Object.assign(extent, { x: extent.x - edge, y: extent.y - edge, width: extent.width + 2 * edge, height: extent.height + 2 * edge });
}

async function readColumns() {
  const text = document.getElementById("columns").textContent;
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// JavaScript shifts 32 bits only, and times in microseconds need more, hence the multiplication.
function readColumn(bytes, name, Kind = Float64Array) {
  const [offset, count, rising] = header.columns[name];
  const out = new Kind(count);
  let at = offset, total = 0;
  for (let i = 0; i < count; i++) {
    let value = bytes[at] & 127, scale = 128;
    while (bytes[at++] > 127) {
      value += (bytes[at] & 127) * scale;
      scale *= 128;
    }
    const number = value % 2 ? -(value + 1) / 2 : value / 2;
    total = rising ? total + number : number;
    out[i] = total;
  }
  return out;
}

const US = 1e6;

function seconds(column) {
  for (let i = 0; i < column.length; i++) column[i] /= US;
  return column;
}

function readLegs(bytes) {
  if (!header.moves) return null;
  const count = readColumn(bytes, "leg.count", Int32Array);
  const wait = readColumn(bytes, "leg.wait"), lasts = readColumn(bytes, "leg.lasts");
  const [x, y, dx, dy] = ["x", "y", "dx", "dy"].map((name) => readColumn(bytes, "leg." + name));
  const first = new Int32Array(count.length + 1);
  for (let node = 0; node < count.length; node++) {
    first[node + 1] = first[node] + count[node];
    let time = 0, atX = 0, atY = 0;
    for (let leg = first[node]; leg < first[node + 1]; leg++) {
      // In place: wait becomes the start time, lasts the end time, x and y the start, dx and dy the speed; in meters.
      const start = time + wait[leg];
      time = start + lasts[leg];
      x[leg] += atX;
      y[leg] += atY;
      atX = x[leg] + dx[leg];
      atY = y[leg] + dy[leg];
      const elapsed = lasts[leg] / US || 1;
      wait[leg] = start / US;
      lasts[leg] = time / US;
      dx[leg] /= elapsed * 100;
      dy[leg] /= elapsed * 100;
    }
  }
  for (let leg = 0; leg < x.length; leg++) {
    x[leg] /= 100;
    y[leg] /= 100;
  }
  frameMovement(x, y, wait, lasts, dx, dy);
  return { first, start: wait, end: lasts, x, y, vx: dx, vy: dy, at: first.slice(0, -1) };
}

// Intervals of pairs: links or cuts. A cut without a second node cuts the first off from all nodes.
function readPairs(bytes, name) {
  const start = readColumn(bytes, name + ".start"), end = readColumn(bytes, name + ".lasts");
  for (let i = 0; i < start.length; i++) end[i] += start[i];
  seconds(start);
  seconds(end);
  const byEnd = Uint32Array.from(start.keys()).sort((one, other) => end[one] - end[other]);
  // Intervals that last to the end of the run include its last moment.
  for (let i = 0; i < end.length; i++) if (end[i] >= duration) end[i] = Infinity;
  return { start, end, byEnd, a: readColumn(bytes, name + ".a", Int32Array), b: readColumn(bytes, name + ".b", Int32Array) };
}

// Who hears whom, as samples: `first` has the first pair of each sample, `toB` and `toA` the chances in percent.
function readHearing(bytes) {
  if (!header.hears_us) return null;
  const count = readColumn(bytes, "hears.pairs", Int32Array), first = new Int32Array(count.length + 1);
  for (let sample = 0; sample < count.length; sample++) first[sample + 1] = first[sample] + count[sample];
  const [a, b, toB, toA] = ["a", "b", "to_b", "to_a"].map((name) => readColumn(bytes, "hears." + name, Int32Array));
  return { first, a, b, toB, toA };
}

function readRun(bytes, told) {
  const column = (name, Kind) => readColumn(bytes, told.prefix + name, Kind);
  const run = {
    label: told.label, events: told.events, attributes: told.attributes, reasons: told.reasons,
    time: seconds(column("fact.time")), code: column("fact.code", Uint8Array),
    node: column("fact.node", Int32Array), event: column("fact.event", Int32Array),
    peer: column("fact.peer", Int32Array),
    dropTime: seconds(column("drop.time")), dropNode: column("drop.node", Int32Array),
    dropReason: column("drop.reason", Int32Array), dropEvent: column("drop.event", Int32Array),
    dropMany: column("drop.many", Int32Array),
    frames: column("frames"),
    published: seconds(column("event.time")), source: column("event.source", Int32Array),
    wanted: told.events.map(() => []), delivered: 0, place: new Map(told.events.map((id, place) => [id, place])),
  };
  const wantEvent = column("want.event", Int32Array), wantNode = column("want.node", Int32Array);
  for (let i = 0; i < wantEvent.length; i++) run.wanted[wantEvent[i]].push(wantNode[i]);
  return run;
}
